"""The ``diag`` commands on a real run: their tables, their JSON, their files."""

from __future__ import annotations

import csv
import html
import json
import shutil

import numpy as np
import pytest

from foxhunt_cli.isv.table import slots
from foxhunt_cli.kernels.registry import gpu_kernels, kernels


def test_slots_as_a_table_and_for_tools(foxhunt):
    status, out, _ = foxhunt("diag", "slots", "lr_pi")
    assert status == 0 and "LR_PI" in out and "controllers.lr_pi" in out
    listed = json.loads(foxhunt("diag", "slots", "--json")[1])
    assert [row["number"] for row in listed] == [slot.number for slot in slots()]
    assert {row["kind"] for row in json.loads(foxhunt("diag", "slots", "--kind", "diag", "--json")[1])} == {"diag"}


def test_pipeline_lists_every_step_once_and_folds_repeats(foxhunt):
    sizes = ("--set", "rollout=4", "--set", "encoder=mlp")
    lines = json.loads(foxhunt("diag", "pipeline", *sizes, "--json")[1])
    assert [line["index"] for line in lines] == list(range(len(lines)))
    assert sum(line["step"] == "lobsim_fill" for line in lines) == 4
    fill = next(line for line in lines if line["step"] == "lobsim_fill")
    assert (fill["grid"], fill["block"]) == ("1", "64")
    assert "market_target" in fill["reads"] and "fill_lots" in fill["writes"]
    out = foxhunt("diag", "pipeline", *sizes)[1]
    assert out.count("lobsim_fill") == 1 and "-- 4 times:" in out
    assert max(map(len, out.splitlines()[:-1])) <= 80


def test_kernels_without_a_compiler(foxhunt):
    listed = json.loads(foxhunt("diag", "kernels", "--static", "--json")[1])["kernels"]
    assert [row["kernel"] for row in listed] == [*kernels(), *gpu_kernels()]


def test_registers_of_a_kernel(foxhunt, tmp_path, monkeypatch):
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (row,) = json.loads(foxhunt("diag", "kernels", "lobsim", "--json")[1])["kernels"]
    assert 16 <= row["registers"] <= 255 and row["spill_store_bytes"] == row["spill_load_bytes"] == 0
    assert json.loads(foxhunt("diag", "kernels", "lobsim", "--json")[1])["kernels"] == [row]


def test_check_says_why_it_ends_with_1(workplace, foxhunt):
    status, out, _ = foxhunt("diag", "check", "runs/demo", "--json")
    document = json.loads(out)
    assert {row["topic"] for row in document["criteria"]} >= {"finite", "losses", "trades", "controllers", "hindsight"}
    assert status == int(not document["passed"])
    log = workplace / "runs/demo/run.jsonl"
    log.write_text(log.read_text().replace('"nonfinite":[]', '"nonfinite":["loss.pi"]'))
    status, out, _ = foxhunt("diag", "check", "runs/demo")
    assert status == 1 and "loss.pi not finite" in out


def test_compare_shows_settings_and_figures(workplace, foxhunt):
    document = json.loads(foxhunt("diag", "compare", "runs/demo", "runs/other", "--json")[1])
    assert document["runs"] == ["demo", "other"]
    assert document["differences"] == {"lot_limit": [None, 2]}
    assert document["figures"]["steps"] == [96.0, 96.0]


def test_runs_of_one_name_are_told_apart(workplace, foxhunt):
    shutil.copytree("runs/demo", "elsewhere/demo")
    document = json.loads(foxhunt("diag", "compare", "runs/demo", "elsewhere/demo", "--json")[1])
    assert document["runs"] == ["runs/demo", "elsewhere/demo"]


def test_tail_of_a_run_that_has_ended_ends(workplace, foxhunt):
    status, out, _ = foxhunt("diag", "tail", "runs/demo", "-n", "2")
    lines = out.splitlines()
    assert status == 0 and len(lines) == 3
    assert [line.split()[0] for line in lines] == ["step", "88", "96"]


@pytest.mark.parametrize(("name", "magic"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("deep/a.html", b"<!doctype")])
def test_plot_writes_what_the_name_says(workplace, foxhunt, name, magic):
    status, out, err = foxhunt("diag", "plot", "runs/demo", "-o", name)
    assert (status, out.strip()) == (0, name), err
    assert (workplace / name).read_bytes().startswith(magic)


def test_the_page_needs_nothing_else(workplace, foxhunt):
    foxhunt("diag", "plot", "runs/demo", "-o", "a.html")
    text = (workplace / "a.html").read_text()
    assert "http" not in text.replace("http-equiv", "") and "data:image/png;base64," in text


def test_the_page_says_what_summarize_says(workplace, foxhunt):
    foxhunt("diag", "plot", "runs/demo", "-o", "a.html")
    text = html.unescape((workplace / "a.html").read_text())
    said = json.loads(foxhunt("diag", "summarize", "runs/demo", "--json")[1])["verdicts"]
    assert said and not [verdict["text"] for verdict in said if verdict["text"] not in text]
    assert "<td>None</td>" not in text and "<td>not set</td>" in text


def test_the_drawing_shows_the_controllers_that_summarize_counts(workplace):
    from matplotlib import pyplot

    from foxhunt_cli.diag import plots
    from foxhunt_cli.diag.summary import summarize
    from foxhunt_cli.diag.verdict import verdicts

    summary = summarize(workplace / "runs/demo")
    _, axes = pyplot.subplots()
    plots._controllers(axes, summary)
    counted = next(verdict.text for verdict in verdicts(summary) if verdict.topic == "controllers")
    assert 0 < len(axes.lines) == int(counted.split()[0])
    pyplot.close()


def test_exports_hold_the_log(workplace, foxhunt):
    records = [json.loads(line) for line in (workplace / "runs/demo/run.jsonl").read_text().splitlines()]
    foxhunt("diag", "export", "runs/demo", "-o", "a.csv")
    with (workplace / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["step"]) for row in rows] == [record["step"] for record in records]
    assert [float(row["loss.v"]) for row in rows] == [record["loss"]["v"] for record in records]
    parquet = pytest.importorskip("pyarrow.parquet")
    foxhunt("diag", "export", "runs/demo", "loss.", "actions.share.2", "-o", "a.parquet")
    table = parquet.read_table(workplace / "a.parquet").to_pydict()
    assert set(table) == {
        "step",
        "iteration",
        "time",
        "actions.share.2",
        *(f"loss.{name}" for name in records[0]["loss"]),
    }
    np.testing.assert_array_equal(table["actions.share.2"], [record["actions"]["share"][2] for record in records])


def test_tensorboard_events_hold_every_number(workplace, foxhunt):
    pytest.importorskip("tensorboardX")
    status, out, err = foxhunt("diag", "export", "runs/demo", "loss.", "-o", "events/")
    assert status == 0, err
    (file,) = (workplace / "events").iterdir()
    assert file.name.startswith("events.out.tfevents") and file.read_bytes().count(b"loss/v") == 12


def test_an_extra_that_is_missing_is_named(workplace, foxhunt, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    status, out, err = foxhunt("diag", "plot", "runs/demo")
    assert (status, out) == (2, "")
    assert "pip install 'foxhunt[plots]'" in err
