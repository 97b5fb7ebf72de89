"""The runs that a sweep is made of, and the folder that remembers them."""

from __future__ import annotations

import json
from pathlib import Path

import orjson
import pytest

from foxhunt_cli.config.load import ConfigError, Setting, load_config
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.sweep import folder
from foxhunt_cli.sweep.plan import parse_vary, plan, words
from foxhunt_cli.train import run_dir

SETS = ["encoder=mlp"]


def grid(place: Path, *varied: str, seeds: int = 2, steps: int = 32):
    return plan("lr", varied, seeds, sets=[*SETS, f"runs_dir={place}"], options=[Setting("steps", steps, "--steps")])


def test_the_grid_is_every_combination_times_the_seeds(tmp_path) -> None:
    runs = grid(tmp_path, "batch=2,4", "isv.lr_pi=0.001,0.01")
    assert [run.label for run in runs][:3] == [
        "batch-2--lr_pi-0.001--seed-0",
        "batch-2--lr_pi-0.001--seed-1",
        "batch-2--lr_pi-0.01--seed-0",
    ]
    assert len({run.label for run in runs}) == 8
    for run in runs:
        config = run.config
        assert (config.batch, config.isv["lr_pi"], config.seed) == (*run.setting.values(), run.seed)
        assert (config.name, config.runs_dir, config.steps) == (run.label, tmp_path / "lr", 32)
    assert words(runs[0].setting) == "batch=2 isv.lr_pi=0.001" and words({}) == "-"


def test_without_anything_varied_there_are_the_seeds_alone(tmp_path) -> None:
    assert [run.label for run in plan("x", (), 2, sets=["seed=5", f"runs_dir={tmp_path}"])] == ["seed-5", "seed-6"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("preset=foxhunt,seed", ["foxhunt", "seed"]),
        ("batch= 2 , 4 ", [2, 4]),
        ('paths=["a.csv","b.csv"],["c.csv"]', [["a.csv", "b.csv"], ["c.csv"]]),
        ("data.symbol='A,B',C", ["A,B", "C"]),
        ("iqn=true,false", [True, False]),
    ],
)
def test_values_are_split_at_their_outermost_commas(text, values) -> None:
    assert [setting.value for setting in parse_vary(text)] == values


@pytest.mark.parametrize(
    ("varied", "words"),
    [
        ("batch", "expected KEY=V1,V2"),
        ("batch=2,", "expected KEY=V1,V2"),
        ("batch=2,2", "each value once"),
        ("batch=2,0", "--vary batch=0"),
        ("btach=2", "did you mean 'batch'"),
        ("seed=1,2", "--seeds N"),
        ("device=cpu,cuda", "one sweep for each device"),
        ("steps=32,64", "given by --steps too"),
    ],
)
def test_what_cannot_be_varied_is_one_clear_error(tmp_path, varied, words) -> None:
    with pytest.raises(ConfigError, match=words):
        grid(tmp_path, varied)


def test_labels_that_would_not_differ_or_are_too_long_are_numbers(tmp_path) -> None:
    runs = grid(tmp_path, 'paths=["a/x.csv"],["a-x.csv"]', seeds=1)
    assert [run.label for run in runs] == ["setting-0--seed-0", "setting-1--seed-0"]
    assert all(path.is_absolute() for run in runs for path in run.config.paths)
    long = ",".join(f'["{character * 90}.csv"]' for character in "ab")
    assert [run.label for run in grid(tmp_path, f"paths={long}", seeds=1)] == ["setting-0--seed-0", "setting-1--seed-0"]


def test_a_sweep_of_too_many_runs_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"at most 10,000 runs, got 2 settings x 6,000 seeds"):
        grid(tmp_path, "batch=2,4", seeds=6_000)


def test_the_folder_gives_back_the_runs_it_was_begun_with(tmp_path) -> None:
    runs = grid(tmp_path, "batch=2,4")
    place = tmp_path / "lr"
    assert not folder.exists(place)
    folder.begin(place, runs)
    folder.require_same(place, grid(tmp_path, "batch=2,4"))
    assert folder.read(place) == runs


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"steps": 64}, "batch-2--seed-0 has steps = 32 there, 64 asked"),
        ({"seeds": 3}, "it has no run batch-2--seed-2"),
        ({"seeds": 1}, "it has a run batch-2--seed-1 too"),
    ],
)
def test_another_request_under_the_same_name_is_refused(tmp_path, asked, words) -> None:
    folder.begin(tmp_path / "lr", grid(tmp_path, "batch=2,4"))
    with pytest.raises(ConfigError, match=words):
        folder.require_same(tmp_path / "lr", grid(tmp_path, "batch=2,4", **asked))


def test_a_changed_request_is_noticed(tmp_path) -> None:
    place = tmp_path / "lr"
    folder.begin(place, grid(tmp_path))
    facts = json.loads((place / folder.REQUEST).read_text())
    facts["runs"][0]["seed"] = 9
    (place / folder.REQUEST).write_text(json.dumps(facts))
    with pytest.raises(FileError, match="does not match its digest"):
        folder.read(place)


def test_a_run_is_started_with_its_own_configuration(tmp_path) -> None:
    run = grid(tmp_path, "isv.lr_pi=0.002")[1]
    place = tmp_path / "lr"
    folder.begin(place, [run])
    folder.write_config(place, run, "cpu", 3)
    expected = run.config.model_copy(update={"device": "cpu", "cpu_threads": 3})
    assert load_config(folder.config_path(place, run.label)) == expected
    assert isinstance(expected, RunConfig)


def test_a_label_that_leads_out_of_the_folder_is_refused(tmp_path) -> None:
    """Whoever can write a sweep.json can make its digest too."""
    runs = plan("s", (), 1, sets=[f"runs_dir={tmp_path}"])
    folder.begin(tmp_path / "s", runs)
    path = tmp_path / "s" / folder.REQUEST
    facts = orjson.loads(path.read_bytes())
    facts["runs"][0]["label"] = "../../elsewhere"
    facts.pop("self")
    path.write_bytes(orjson.dumps(facts | {"self": run_dir.json_digest(facts)}))
    with pytest.raises(FileError, match="no label of a run"):
        folder.read(tmp_path / "s")
