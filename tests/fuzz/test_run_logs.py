"""Readers of run logs: records, a torn tail that is reported, or a RunLogError. Manifests beside them: no crash."""

from __future__ import annotations

import math

import numpy as np
import orjson
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.diag.columns import read_columns
from foxhunt_cli.diag.compare import differences, load
from foxhunt_cli.diag.evaluations import last_evaluation
from foxhunt_cli.diag.page import page
from foxhunt_cli.diag.plots import POINTS, draw
from foxhunt_cli.diag.reader import RunLog, RunLogError
from foxhunt_cli.diag.summary import as_document, summarize
from foxhunt_cli.diag.tail import last_records
from foxhunt_cli.diag.verdict import HIGH, LOW, NET, verdicts
from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.train import resume, run_dir

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ODD = st.sampled_from([None, True, "", "x", -1, 0, 2**63, 1e308, [], {}, [None], [[1]], {"a": {}}, ["a", 1]])
NAMES = ["step", "iteration", "time", "nonfinite", "loss", "market", "actions", "signals", "perf", "new"]


def record(step: int) -> dict:
    """A line as a run writes it, in small."""
    return {
        "step": 8 * step,
        "iteration": step,
        "time": 1.7e9 + step,
        "loss": {"pi": 0.1, "v": 1.0 / step},
        "actions": {"share": [0.5, 0.5]},
        "market": {"pnl_step_usd": 1.0, "trades_closed": 1.0, "win_rate": 0.5},
        "nonfinite": [],
    }


def log(steps: int = 12) -> bytes:
    """A whole run.jsonl."""
    return b"".join(orjson.dumps(record(n)) + b"\n" for n in range(1, steps + 1))


def read_in_every_way(folder) -> None:
    """Each reader ends in a result or in a RunLogError; what the first one accepts, all accept."""
    found = RunLog(folder)
    try:
        records = list(found)
    except RunLogError as error:
        assert "run.jsonl line " in str(error)
        for reader in (summarize, read_columns):
            with pytest.raises(RunLogError):
                reader(folder)
        return
    torn = found.torn_bytes
    assert torn < 2**22 and all(isinstance(r, dict) for r in records)
    try:
        summary = summarize(folder)
        orjson.dumps(as_document(summary), option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
        columns = read_columns(folder)
    except RunLogError:
        return
    assert all(len(values) <= len(records) for values in columns.values())
    assert len(last_records(folder, 5)) <= 5
    assert differences(load([folder])) == {}


@given(cut=st.integers(0, 2500), tail=st.binary(max_size=12))
@FUZZ
def test_a_log_cut_anywhere_gives_its_whole_lines(tmp_path, cut: int, tail: bytes) -> None:
    whole = log()
    (tmp_path / "run.jsonl").write_bytes(whole[:cut])
    found = RunLog(tmp_path)
    records = list(found)
    complete = whole[:cut].count(b"\n")
    assert records[:complete] == [record(n) for n in range(1, complete + 1)] and len(records) <= complete + 1
    rest = len(whole[:cut]) - (whole[:cut].rfind(b"\n") + 1)
    assert found.torn_bytes == (0 if len(records) > complete else rest)
    read_in_every_way(tmp_path)
    (tmp_path / "run.jsonl").write_bytes(whole[:cut] + tail)
    read_in_every_way(tmp_path)


@given(damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=6))
@FUZZ
def test_flipped_bits(tmp_path, damage) -> None:
    content = bytearray(log())
    for place, bit in damage:
        content[int(place * len(content))] ^= 1 << bit
    (tmp_path / "run.jsonl").write_bytes(content)
    read_in_every_way(tmp_path)


@given(changes=st.lists(st.tuples(st.integers(1, 12), st.sampled_from(NAMES), ODD), min_size=1, max_size=4))
@example(changes=[(3, "step", "x")])
@example(changes=[(3, "step", [])])
@example(changes=[(3, "step", 2**63)])
@example(changes=[(3, "iteration", {})])
@example(changes=[(3, "nonfinite", 5)])
@example(changes=[(1, "market", None), (2, "market", [])])
@FUZZ
def test_lines_with_odd_values(tmp_path, changes) -> None:
    records = {n: record(n) for n in range(1, 13)}
    for number, name, value in changes:
        records[number][name] = value
    (tmp_path / "run.jsonl").write_bytes(b"".join(orjson.dumps(r, default=str) + b"\n" for r in records.values()))
    read_in_every_way(tmp_path)


@given(content=st.binary(max_size=300))
@example(content=b"[" * 5000)
@example(content=b'{"a":' * 3000)
@example(content=b"\x00" * 100)
@FUZZ
def test_noise(tmp_path, content: bytes) -> None:
    (tmp_path / "run.jsonl").write_bytes(content)
    read_in_every_way(tmp_path)


@given(cut=st.integers(0, 2500), step=st.integers(0, 120), noise=st.binary(max_size=8))
@FUZZ
def test_a_log_is_cut_back_to_a_step_or_refused(tmp_path, cut: int, step: int, noise: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(log()[:cut] + noise)
    try:
        resume.cut_log(path, step)
    except FileError as error:
        assert str(path) in str(error)
        return
    records = list(RunLog(path))
    assert all(r["step"] <= step for r in records) and path.read_bytes() == log()[: path.stat().st_size]


MANIFEST = {
    "format": 1,
    "config": {"batch": 4, "steps": 64},
    "data": {"digest": "d"},
    "kernel_hash": "k",
    "isv_seeds": {"gamma": 0.99},
}


@given(damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=3))
@FUZZ
def test_a_manifest_with_flipped_bits_is_refused(tmp_path, damage) -> None:
    (tmp_path / "run.jsonl").write_bytes(log())
    run_dir.write_manifest(tmp_path, MANIFEST)
    good = (tmp_path / "manifest.json").read_bytes()
    content = bytearray(good)
    for place, bit in damage:
        content[int(place * len(content))] ^= 1 << bit
    (tmp_path / "manifest.json").write_bytes(content)
    load([tmp_path])
    summarize(tmp_path)
    try:
        same = run_dir.read_manifest(tmp_path)
    except FileError:
        return
    assert {k: v for k, v in same.items() if k != "self"} == MANIFEST, "only spaces have changed"


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=6,
)


@given(key=st.sampled_from([*MANIFEST, "config.batch", "config.synthetic", "config.paths", "data.digest"]), value=JSON)
@FUZZ
def test_a_manifest_of_another_shape_is_refused_or_used(tmp_path, key: str, value) -> None:
    (tmp_path / "run.jsonl").write_bytes(log())
    manifest = orjson.loads(orjson.dumps(MANIFEST))
    *above, last = key.split(".")
    (manifest[above[0]] if above else manifest)[last] = value
    run_dir.write_manifest(tmp_path, manifest)
    load([tmp_path])
    summarize(tmp_path)
    try:
        config = resume.resumed_config(tmp_path, [])
    except (FileError, ConfigError) as error:
        assert "manifest.json" in str(error)
        return
    assert config.batch >= 1 and math.isfinite(np.float64(config.steps))


FIGURES = {"net USD / 1,000 steps": 5.0, "95 % interval, low": 1.0, "95 % interval, high": 9.0, "trades": 3.0}
EVALUATION = {"policies": {"agent": FIGURES, "flow": FIGURES}}


@given(path=st.lists(st.sampled_from(["policies", "agent", "flow", *FIGURES]), max_size=3), value=JSON)
@example(path=["policies"], value=5)
@example(path=["policies", "agent"], value=None)
@example(path=["policies", "agent", "trades"], value=[])
@example(path=["policies", "flow", "net USD / 1,000 steps"], value="x")
@FUZZ
def test_an_evaluation_of_another_shape_is_left_out_or_told_of(tmp_path, path: list[str], value) -> None:
    """Beside a sound log the file of an evaluation can spoil no reader."""
    document = orjson.loads(orjson.dumps(EVALUATION))
    above = document
    for key in path[:-1]:
        above = above.get(key, {}) if isinstance(above, dict) else {}
    if path:
        above[path[-1]] = value
    (tmp_path / "run.jsonl").write_bytes(log())
    (tmp_path / "eval").mkdir(exist_ok=True)
    (tmp_path / "eval" / "final.json").write_bytes(orjson.dumps(document if path else value))
    read_evaluated(tmp_path)


@given(damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), max_size=3), cut=st.integers(0))
@example(damage=[], cut=0)
@example(damage=[], cut=10)
@FUZZ
def test_a_damaged_evaluation_is_left_out_or_told_of(tmp_path, damage, cut: int) -> None:
    content = bytearray(orjson.dumps(EVALUATION))
    for place, bit in damage:
        content[int(place * len(content))] ^= 1 << bit
    (tmp_path / "run.jsonl").write_bytes(log())
    (tmp_path / "eval").mkdir(exist_ok=True)
    (tmp_path / "eval" / "final.json").write_bytes(content[: cut % 400])
    read_evaluated(tmp_path)


def read_evaluated(folder) -> None:
    """Whoever reads an evaluation: a line that names figures, or one that says that they are damaged."""
    words = [verdict for verdict in verdicts(summarize(folder)) if verdict.topic == "held out"]
    policies = last_evaluation(folder)
    assert policies is not None and len(words) <= 1
    if "agent" not in policies:
        assert "damaged" in words[0].text
    load([folder])


def test_a_later_evaluation_that_is_damaged_does_not_let_an_older_one_speak_for_it(tmp_path) -> None:
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "step-000000064.json").write_bytes(orjson.dumps(EVALUATION))
    assert last_evaluation(tmp_path)["agent"] == FIGURES
    (tmp_path / "eval" / "final.json").write_bytes(b"{")
    assert last_evaluation(tmp_path) == {}
    assert last_evaluation(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("manifest", "evaluation"),
    [
        ({"config": [], "device": "x"}, {"policies": 5}),
        ({"config": "encoder", "device": []}, {"policies": {"agent": None}}),
        ({"config": {"encoder": []}, "device": {"name": {}}}, {"policies": {"agent": {NET: "x"}, "flow": []}}),
        ([], {"policies": {"agent": {NET: 1.0, LOW: None, HIGH: "x"}, "flow": {NET: 2.0}}}),
    ],
)
def test_a_page_is_drawn_whatever_lies_beside_the_log(tmp_path, manifest, evaluation) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "run.jsonl").write_bytes(log())
    (tmp_path / "manifest.json").write_bytes(orjson.dumps(manifest))
    (tmp_path / "eval").mkdir()
    for name in ("final", "step-000000064", "step-x"):
        (tmp_path / "eval" / f"{name}.json").write_bytes(orjson.dumps(evaluation))
    summary = summarize(tmp_path, points=POINTS)
    assert page(summary, draw(summary))
