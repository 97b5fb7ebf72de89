"""RunConfig and its loading: precedence, error wording, round trip to TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from foxhunt_cli.config.load import ConfigError, Setting, dump_toml, load_config, parse_set
from foxhunt_cli.config.run import RunConfig


def test_defaults_are_a_valid_run():
    assert load_config() == RunConfig()


@pytest.mark.parametrize(("steps", "rollout", "iterations"), [(10_000, 16, 625), (1, 16, 1), (17, 16, 2), (5, 1, 5)])
def test_steps_are_rounded_up_to_whole_iterations(steps, rollout, iterations):
    assert RunConfig(steps=steps, rollout=rollout).iterations == iterations


def test_every_field_says_what_it_means():
    assert [name for name, field in RunConfig.model_fields.items() if not field.description] == []


def test_later_sources_win(tmp_path: Path):
    file = tmp_path / "run.toml"
    file.write_text("batch = 2\nseed = 2\nsteps = 2\nrollout = 2\n[isv]\ngamma = 0.95\nlr_pi = 1e-4\n")
    seeds = tmp_path / "isv.toml"
    seeds.write_text("[isv]\ngamma = 0.96\n")
    option = Setting("steps", 5, "--steps")
    config = load_config(file, seeds, ["seed=3", "steps=4", "seed=4"], [option, Setting("rollout", None, "--rollout")])
    assert (config.batch, config.seed, config.steps, config.rollout) == (2, 4, 5, 2)
    assert config.isv == {"gamma": 0.96, "lr_pi": 1e-4}


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("batch=32", "batch", 32),
        ("isv.gamma = 0.9", "isv.gamma", 0.9),
        ("graph=false", "graph", False),
        ("name=first-try", "name", "first-try"),
        ('name="8"', "name", "8"),
        ("runs_dir=/tmp/a=b", "runs_dir", "/tmp/a=b"),
        ("data.x=[1, 2]", "data.x", [1, 2]),
    ],
)
def test_set_takes_toml_values_and_bare_words(text, key, value):
    setting = parse_set(text)
    assert (setting.key, setting.value) == (key, value)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path):
    (tmp_path / "run.toml").write_bytes(b"\xef\xbb\xbfsteps = 5\n")
    assert load_config(tmp_path / "run.toml").steps == 5


@pytest.mark.parametrize(
    "text", ["batch", "=3", "batch=", ".batch=3", "a..b=3", "batch=[1", 'name="x', "batch=1\nseed=2"]
)
def test_set_refuses_what_is_not_one_key_and_one_value(text):
    with pytest.raises(ConfigError, match=r"^--set "):
        parse_set(text)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["bacth=3"], r"--set bacth=3: unknown key 'bacth'; did you mean 'batch'\? \('foxhunt init' writes every key"),
        (["zzz=3"], r"unknown key 'zzz'; allowed: batch, .*trail_ratchet"),
        (["synthetic.presett=wavy"], r"unknown key 'synthetic.presett'; did you mean 'synthetic.preset'\?"),
        (["batch=0"], r"--set batch=0: batch should be greater than or equal to 1, got 0"),
        (["batch=x"], r"batch should be a valid integer.*, got 'x'"),
        (["batch=1.5"], r"batch should be a valid integer.*, got 1.5"),
        (["batch=70000"], r"batch should be less than or equal to 65536, got 70000"),
        (["rollout=0"], r"rollout should be greater than or equal to 1, got 0"),
        (["batch=60000", "rollout=1000"], r"60000 x 1000 = 60,000,000 moments .* limit is 1,048,576; use a smaller"),
        (["episode_len=20"], r"episode_len is 20, .* raise episode_len to 32 or lower rollout"),
        (["latency_steps=17"], r"latency_steps should be less than or equal to 16, got 17"),
        (["lot_limit=9"], r"lot_limit should be less than or equal to 8, got 9"),
        (["holdout=nan"], r"holdout should be .*, got nan"),
        (["encoder=mamba"], r"encoder should be 'full' or 'mlp', got 'mamba'"),
        (["reward=pnl"], r"reward should be 'mark_to_market' or 'realised', got 'pnl'"),
        (["device=gpu"], r"device: expected auto, cpu, cuda or cuda:N, got 'gpu'"),
        (["name=../x"], r"name: expected 1 to 100 letters"),
        (["isv=3"], r"isv should be a table, got 3"),
        (["isv.gama=0.9"], r"--set isv.gama=0.9: isv.gama: no such slot; did you mean 'gamma'\?"),
        (["isv.gamma=7"], r"--set isv.gamma=7: isv.gamma: 7.* is outside the allowed range"),
        (["isv.gamma=nan"], r"isv.gamma: nan is outside the allowed range"),
        (["isv.n_step_start=16"], r"--set isv.n_step_start=16: isv.n_step_start: 16 has no effect"),
        (["isv.n_step_anneal_steps=9", "isv.n_step_start=4"], r"n_step_start: 4 is below isv.n_step = 8, .*raise"),
        (["data.instrument.symbl=X"], r"unknown key 'data.instrument.symbl'; did you mean 'data.instrument.symbol'"),
        (['data.instrument={symbol="X"}'], r"data.instrument.tick_size field required, got \{'symbol': 'X'\} \(and"),
        (["paths=[]"], r"--set paths=\[\]: paths "),
        (["data.tick_size=-1"], r"--set data.tick_size=-1: data.tick_size: "),
        (["data.start=someday"], r"data.start: expected a time such as .*, got 'someday'"),
        (["batch=1", "batch.rows=3"], r"batch.rows: 'batch' is a single value"),
    ],
)
def test_errors_name_source_key_expected_and_got(sets, message):
    with pytest.raises(ConfigError, match=message):
        load_config(sets=sets)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"batch = ", r"run.toml: not valid TOML: Invalid value"),
        (b"\xff\xfe", r"run.toml: expected a TOML text file in UTF-8"),
        (b"[data]\npth = 'x'", r"run.toml: unknown key 'data.pth'"),
        (b"steps = 0", r"run.toml: steps should be greater"),
    ],
)
def test_file_errors_name_the_file(tmp_path: Path, content, message):
    file = tmp_path / "run.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load_config(file)


def test_absent_file_and_folder_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="no such file"):
        load_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


@pytest.mark.parametrize("content", ["", "gamma = 0.9", "[isv]\ngamma = 0.9\n[other]\n", "isv = 3"])
def test_a_seeds_file_holds_one_table(tmp_path: Path, content):
    seeds = tmp_path / "isv.toml"
    seeds.write_text(content)
    with pytest.raises(ConfigError, match=r"isv.toml: expected one table \[isv\]"):
        load_config(seeds=seeds)


def test_dumped_toml_reads_back_equal(tmp_path: Path):
    config = load_config(
        sets=["name=demo", "batch=8", "graph=false", "isv.gamma=0.98", "data.tick_size=1/64", 'runs_dir=/tmp/ä "b"']
    )
    file = tmp_path / "run.toml"
    file.write_text(dump_toml(config), encoding="utf-8")
    assert load_config(file) == config


@pytest.mark.parametrize("text", ["paths=a.dbn", 'paths="a.dbn"', 'paths=["a.dbn"]'])
def test_one_path_may_stand_alone(text):
    assert load_config(sets=[text]).paths == (Path("a.dbn"),)


def test_dumped_toml_carries_the_descriptions():
    text = dump_toml(RunConfig())
    assert "# B: parallel backtests" in text
    assert "# lot_limit =" in text
