"""Results as people read them."""

from __future__ import annotations

from foxhunt_cli.bench import text

STAGE = {"stage": "rollout", "label": "rollout", "shape": "", "us": 1000.0, "us_low": 900.0, "us_high": 1100.0,
         "share": 0.25, "kernels": 8, "products": 12, "MB": 2.0, "GFLOP": 0.5, "GB_per_s": 2.0, "TFLOP_per_s": 0.5,
         "of_limit": 0.4}  # fmt: skip
ITERATION = {"iteration_us": 4000.0, "iteration_us_low": 3900.0, "iteration_us_high": 4100.0, "sum_us": 1000.0,
             "floor_us": 400.0, "operations": 20, "rows": [STAGE]}  # fmt: skip


def test_a_stage_reads_as_one_row() -> None:
    table, total, floor = text.stages(ITERATION)
    assert list(table.rows[0]) == ["rollout", "1,000.0", "10%", "25.0%", "8+12", "2.0", "0.50", "2.0", "0.5", "40%"]
    assert "whole iteration 4,000.0 us" in total and "400.0 us" in floor
    short, _ = text.stages(ITERATION, short=True)
    assert list(short.names) == ["stage", "us", "+-", "share"]


def test_a_narrow_terminal_does_without_the_spare_columns() -> None:
    table = text.stages(ITERATION)[0]
    narrow = table.without(table.spare)
    assert "MB" not in narrow.names and len(narrow.rows[0]) == len(narrow.names) == len(table.names) - 2


def test_what_is_no_number_is_not_available() -> None:
    assert text.figure(float("nan")) == "n/a" and text.figure(1234.5, 1) == "1,234.5"


def test_hindsight_factors_say_when_the_other_never_got_there() -> None:
    nan = float("nan")
    assert text._factor({"median": 2.0, "low": 1.5, "high": 3.0, "unheld": 0}) == "2.0 (1.5-3.0)"
    assert text._factor({"median": 2.0, "low": 2.0, "high": 2.0, "unheld": 1}) == ">2.0"
    assert text._factor({"median": nan, "low": nan, "high": nan, "unheld": 2}) == "never"
    assert text._factor({"median": nan, "low": nan, "high": nan, "unheld": 0}) == "n/a"


def test_hindsight_has_factors_of_what_ran_and_fresh_markets_where_there_are_some() -> None:
    factor = {"median": 2.0, "low": 2.0, "high": 2.0, "unheld": 0}
    figures = {"steps": 1200, "updates": 1100, "seconds": 3.25, "capture steps": 900, "final": 610.0,
               "exit capture": 0.41, "bias": 0.01, "held out": 590.5, "worst": 401.0, "held out x rule": 1.25,
               "clear": 5, "judgements": 9, "held": 2, "of": 3}  # fmt: skip
    rows = [
        {"policy": "agent", "hindsight": kind, "x none3": factor, "x none8": factor} | figures
        for kind in ("none8", "path-annealed")
    ]
    found = {"threshold": 600.0, "rule": "so much", "flow": 470.0, "capture": 0.4, "surrogate": False, "rows": rows}
    _, held, *_, ends, _ = text.hindsight(found | {"judgements": []})
    assert list(held.names) == ["policy, hindsight", "held", "steps", "x none8", "to capture"]
    assert held.rows[1] == ("agent, path-annealed", "2 of 3", "1,200", "2.0", "900")
    assert "held out" not in ends.names and all(len(row) == len(ends.names) for row in ends.rows)
    *_, fresh, _, _ = text.hindsight(found | {"judgements": [{}]})
    assert list(fresh.names[-4:]) == ["held out", "worst", "x rule", "clear"]
    assert fresh.rows[1][-4:] == ("590.5", "401.0", "1.25", "5 of 9")


def test_learning_has_a_line_for_each_agent_and_market_where_it_is_asked_for() -> None:
    labels = {"market": "wavy", "preset": "foxhunt", "encoder": "mlp", "policy": "pi", "seed": 3}
    shares = dict.fromkeys(("x rule", "of drift", "of the bound", "exit capture", "win rate"), 0.5)
    row = labels | shares | {"net": 900.0, "worst": 800.0, "rule net": 450.0, "clear": 2, "judgements": 3, "trades": 90}
    row |= {"steps": 4000, "held": 1, "of": 1, "seconds": 5.0}
    intervals = {"low": 700.0, "high": 1100.0, "gross low": 720.0, "gross high": 1150.0, "rule high": 610.0}
    judged = row | intervals | {"held out": "market 1000", "rule": "flow"}
    found = {"rows": [row], "judgements": [judged]}
    brief, whole = text.learn(found), text.learn(found, detail=True)
    assert brief[0].rows[0][:5] == ("wavy, foxhunt, mlp, pi", "900", "800", "450", "2 of 3")
    assert len(whole) == len(brief) + 2
    assert whole[-1].rows[0][1:7] == ("3", "1000", "900", "700 to 1,100", "720 to 1,150", "flow 450")
