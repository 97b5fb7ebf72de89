"""The summary of a run with a known story, its verdicts and its report."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from fake_run import BATCH, ROLLOUT, records, write_run
from rich.console import Console

from foxhunt_cli.diag.anomalies import ACTIONS
from foxhunt_cli.diag.figures import number
from foxhunt_cli.diag.reader import RunLogError
from foxhunt_cli.diag.render import render
from foxhunt_cli.diag.summary import Summary, summarize
from foxhunt_cli.diag.verdict import verdicts


@pytest.fixture(scope="module")
def rows():
    return list(records(625))


def summary_of(directory: Path, rows, tail: bytes = b"") -> Summary:
    return summarize(write_run(directory, rows, tail))


def marks(summary: Summary) -> dict[str, str]:
    return {verdict.topic: verdict.mark for verdict in verdicts(summary)}


def test_totals_of_the_run(tmp_path: Path, rows):
    summary = summary_of(tmp_path, rows)
    assert (summary.lines, summary.iterations, summary.last_step) == (625, 625, 10_000)
    assert (summary.batch, summary.rollout) == (BATCH, ROLLOUT)
    assert summary.seconds == pytest.approx(0.05 * 624)
    assert summary.total("market.trades_closed") == sum(row["market"]["trades_closed"] for row in rows)


def test_one_line_is_one_line(tmp_path: Path):
    summary = summary_of(tmp_path, list(records(1)))
    text = "\n".join(str(part) for part in render(summary, verdicts(summary), 80))
    assert f"{ROLLOUT} steps in 1 iteration, 16 rows" in text and "; 1 line\n" in text
    assert {verdict.text for verdict in verdicts(summary)} >= {"too short to judge: 1 line"}


def test_verdicts_do_not_depend_on_the_resolution_of_a_drawing(tmp_path: Path, rows):
    coarse, fine = summary_of(tmp_path, rows), summarize(tmp_path, 512)
    assert len(fine.get("loss.pi").stretches.sums) > len(coarse.get("loss.pi").stretches.sums)
    assert verdicts(fine) == verdicts(coarse)


def test_rates_are_per_row_and_thousand_steps(tmp_path: Path, rows):
    summary = summary_of(tmp_path, rows)
    trades = summary.get("market.trades_closed")
    by_hand = trades.total / (summary.last_step / 1_000) / BATCH
    assert trades.mean * summary.per_thousand == pytest.approx(by_hand)


def test_a_good_run_reads_well(tmp_path: Path, rows):
    summary = summary_of(tmp_path, rows)
    assert marks(summary) == {
        "learning": "ok",
        "trading": "ok",
        "PnL": "ok",
        "numbers": "ok",
        "exploring": "ok",
        "controllers": "ok",
        "speed": "info",
    }
    assert summary.anomalies == []


def test_a_run_that_gets_worse_is_told_so(tmp_path: Path, rows):
    worse = [{**row, "market": {**row["market"], "pnl_step_usd": -row["market"]["pnl_step_usd"]}} for row in rows]
    assert marks(summary_of(tmp_path, worse))["learning"] == "bad"


def test_losing_less_is_not_called_a_success(tmp_path: Path, rows):
    losing = copy.deepcopy(rows)
    for row in losing:
        row["market"]["pnl_step_usd"] -= 200
    first = verdicts(summary_of(tmp_path, losing))[0]
    assert (first.topic, first.mark) == ("learning", "look")
    assert first.text.startswith("it loses less while it explores: PnL -")


@pytest.mark.parametrize(
    ("low", "mark", "words"), [(100.0, "ok", "the policy earns"), (-5.0, "look", "no profit beyond noise")]
)
def test_the_last_evaluation_leads(tmp_path: Path, rows, low, mark, words):
    write_run(tmp_path, rows)
    (tmp_path / "eval").mkdir()
    agent = {"net USD / 1,000 steps": 300.0, "95 % interval, low": low, "95 % interval, high": 500.0, "trades": 40.0}
    policies = {"agent": agent, "flow": {"net USD / 1,000 steps": 490.0}, "bound": {"net USD / 1,000 steps": 2000.0}}
    (tmp_path / "eval" / "step-000000100.json").write_text("{")
    (tmp_path / "eval" / "final.json").write_text(json.dumps({"policies": policies}))
    first = verdicts(summarize(tmp_path))[0]
    assert (first.topic, first.mark) == ("held out", mark)
    assert words in first.text and "+300 USD" in first.text and "best rule flow +490" in first.text


def test_noise_is_not_called_learning(tmp_path: Path, rows):
    flat = [{**row, "market": {**row["market"], "pnl_step_usd": (-1) ** n * 50.0}} for n, row in enumerate(rows)]
    assert marks(summary_of(tmp_path, flat))["learning"] == "look"


def test_a_short_run_is_not_judged(tmp_path: Path, rows):
    assert marks(summary_of(tmp_path, rows[:3]))["learning"] == "info"


def broken(rows, change, start: int, end: int | None = None):
    rows = copy.deepcopy(rows)
    for row in rows[start:end]:
        change(row)
    return rows


def silence(row):
    row["market"].update(trades_closed=0, wins=0)
    row["actions"]["share"] = [float(name == "Hold") for name in ACTIONS]


def test_a_run_that_stops_trading_is_told_so(tmp_path: Path, rows):
    summary = summary_of(tmp_path, broken(rows, silence, 300))
    assert marks(summary)["trading"] == "bad"
    assert [(a.step, a.what) for a in summary.anomalies] == [
        (301 * ROLLOUT, "no trade closed, to the end"),
        (301 * ROLLOUT, "every action was Hold, to the end"),
    ]


def test_a_short_pause_is_no_anomaly(tmp_path: Path, rows):
    assert summary_of(tmp_path, broken(rows, silence, 300, 340)).anomalies == []


def test_a_pause_that_ended_says_how_long_it_was(tmp_path: Path, rows):
    found = summary_of(tmp_path, broken(rows, silence, 300, 400)).anomalies
    assert found[0].what == f"no trade closed, longest stretch {99 * ROLLOUT:,} steps"


def poison(row):
    row["loss"]["pi"] = None
    row["nonfinite"] = ["loss.pi"]


def test_non_finite_losses_lead_with_their_step(tmp_path: Path, rows):
    summary = summary_of(tmp_path, broken(rows, poison, 600, 610))
    assert marks(summary)["numbers"] == "bad"
    assert (summary.anomalies[0].step, summary.anomalies[0].what) == (601 * ROLLOUT, "loss.pi not finite, on 10 lines")


def test_a_loss_jump_is_found_where_it_happened(tmp_path: Path, rows):
    summary = summary_of(tmp_path, broken(rows, lambda row: row["loss"].update(total=90.0), 500, 501))
    assert [(a.step, a.kind) for a in summary.anomalies] == [(501 * ROLLOUT, "jump")]


def test_entropy_collapse(tmp_path: Path, rows):
    gone = broken(rows, lambda row: row["signals"].update(entropy_observed_ema=0.01), 400)
    summary = summary_of(tmp_path, gone)
    assert marks(summary)["exploring"] == "bad"
    assert (summary.anomalies[0].step, summary.anomalies[0].kind) == (401 * ROLLOUT, "collapsed")


def test_two_runs_in_one_file_are_noticed(tmp_path: Path, rows):
    summary = summary_of(tmp_path, rows[:50] + rows[:50])
    assert summary.anomalies[0].kind == "order"


def test_a_pegged_controller_is_named(tmp_path: Path, rows):
    def peg(row):
        row["controllers"]["gamma"] = 0.999

    last = next(v for v in verdicts(summary_of(tmp_path, broken(rows, peg, 100))) if v.topic == "controllers")
    assert (last.mark, last.text) == ("look", "2 of 2 moved; at a bound most of the run: gamma")


def test_an_empty_log_says_so(tmp_path: Path):
    with pytest.raises(RunLogError, match="no whole line yet"):
        summary_of(tmp_path, [], tail=b'{"st')


def test_a_log_without_a_manifest_or_market_is_still_read(tmp_path: Path):
    (tmp_path / "run.jsonl").write_text('{"step": 1}\n{"step": 2, "loss": {"total": 1.5}}\n')
    summary = summarize(tmp_path / "run.jsonl")
    assert summary.batch is None
    assert [verdict.topic for verdict in verdicts(summary)] == ["numbers"]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_the_report_fits_its_width(tmp_path: Path, rows, width, ascii_only):
    summary = summary_of(tmp_path, broken(rows, poison, 600), tail=b'{"torn')
    console = Console(width=width, no_color=True, markup=False, highlight=False)
    with console.capture() as captured:
        for part in render(summary, verdicts(summary), width, ascii_only):
            console.print(part)
    text = captured.get()
    body = text.split("\n", 1)[1]  # the first line is the path
    assert max(map(len, body.splitlines())) <= width
    assert "…" not in text
    assert "\x1b" not in text
    for wanted in ("the last line is torn (6 bytes)", "Over time", "Losses", "ShortLarge", "entropy_coef", "Anomalies"):
        assert wanted in text
    assert not ascii_only or text.isascii()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (1.0, "1"),
        (-120.24, "-120.2"),
        (1234.5678, "1,235"),
        (0.05, "0.05"),
        (0.000123, "0.000123"),
        (123456789.0, "1.23e+08"),
        (float("nan"), "n/a"),
        (float("inf"), "inf"),
        (9.9999, "10"),
    ],
)
def test_numbers_for_people(value, text):
    assert number(value) == text
