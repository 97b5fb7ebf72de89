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
