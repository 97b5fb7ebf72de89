"""Series and sparklines: figures of a field in constant memory."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from foxhunt_cli.diag.series import POINTS, Series, Stretches
from foxhunt_cli.diag.sparkline import ASCII, BLOCKS, sparkline


def series_of(values, step=16):
    """All values at once; ``test_pieces_add_up`` shows that pieces give the same."""
    series = Series()
    values = np.array(list(values), np.float64)
    series.extend(step * np.arange(1.0, len(values) + 1), values)
    return series


def test_figures_of_a_short_series():
    series = series_of([2.0, math.nan, -1.0, 5.0])
    assert (series.first, series.last, series.low, series.high) == (2.0, 5.0, -1.0, 5.0)
    assert (series.count, series.total, series.mean) == (3, 6.0, 2.0)


@pytest.mark.parametrize("slope", [0.0, 0.25, -3.0])
def test_the_slope_of_a_line_is_its_slope(slope):
    assert series_of([7 + slope * 16 * i for i in range(500)]).slope(1000) == pytest.approx(1000 * slope)


@pytest.mark.parametrize("values", [[], [1.0], [math.nan, math.nan]])
def test_no_slope_without_two_points(values):
    assert series_of(values).slope() == 0.0


def test_huge_values_make_infinite_sums_and_no_warning(recwarn):
    series = series_of([1e308, -1e308, 1e308])
    assert (series.low, series.high, series.count) == (-1e308, 1e308, 3) and not list(recwarn)


def test_time_at_a_bound_is_counted():
    series = series_of([0.5, 0.1, 0.1, 0.1, 0.9])
    assert (series.low_run, series.high_run) == (3, 1)


@pytest.mark.parametrize("length", [1, POINTS - 1, POINTS, POINTS + 1, 10 * POINTS + 3, 5_000])
def test_stretches_keep_the_mean_and_stay_small(length):
    rng = random.Random(length)
    values = [rng.random() for _ in range(length)]
    stretches = Stretches()
    stretches.extend(np.array(values))
    assert len(stretches.sums) <= POINTS
    assert math.fsum(stretches.sums) == pytest.approx(math.fsum(values))
    assert sum(stretches.counts) == length


@pytest.mark.parametrize("cuts", [1, 7, 100])
def test_pieces_add_up(cuts):
    rng = np.random.default_rng(cuts)
    values = np.round(rng.normal(size=3_000), 2)
    values[rng.random(3_000) < 0.05] = math.nan
    steps = np.arange(3_000.0) * 16
    whole, pieces = Series(), Series()
    whole.extend(steps, values)
    for part in np.array_split(np.arange(3_000), sorted(rng.integers(0, 3_000, cuts))):
        pieces.extend(steps[part], values[part])
    for name in ("first", "last", "low", "high", "count", "low_run", "high_run"):
        assert getattr(whole, name) == getattr(pieces, name)
    assert whole.slope() == pytest.approx(pieces.slope())
    assert whole.stretches.means() == pytest.approx(pieces.stretches.means(), nan_ok=True)
    assert whole.stretches.counts == pieces.stretches.counts


def test_parts_of_a_rising_series_rise():
    stretches = series_of(range(1_000)).stretches
    means = [stretches.part(index, of=4)[0] for index in range(4)]
    assert means == sorted(means)
    assert stretches.last_quarter == means[3]


@pytest.mark.parametrize("length", [5, 128, 129, 375, 1000, 4097])
def test_parts_are_the_same_however_fine_the_stretches(length):
    values = np.random.default_rng(length).normal(size=length)
    parts = []
    for points in (POINTS, 4 * POINTS, 1 << 14):
        stretches = Stretches(points=points)
        stretches.extend(values)
        parts.append([stretches.part(index, 4) for index in range(4)])
    np.testing.assert_allclose(parts[1:], [parts[0]] * 2, rtol=1e-9)


def test_a_stretch_without_a_value_is_a_gap():
    series = series_of([1.0, math.nan, 3.0])
    assert sparkline(series.stretches.means(), 3) == f"{BLOCKS[0]} {BLOCKS[-1]}"


@pytest.mark.parametrize(
    ("values", "width", "line"),
    [
        ([], 8, ""),
        ([1.0], 8, BLOCKS[0]),
        ([0, 1, 2, 3, 4, 5, 6, 7], 8, BLOCKS),
        ([0, 1, 2, 3, 4, 5, 6, 7], 4, "▁▃▆█"),
        ([0.1, 0.1 + 1e-17, 0.1], 3, BLOCKS[0] * 3),
        ([math.nan, math.nan], 2, "  "),
        ([-1e308, 1e308], 2, None),
    ],
)
def test_sparklines(values, width, line):
    drawn = sparkline(values, width)
    assert len(drawn) == min(width, len(values))
    assert line is None or drawn == line


def test_ascii_sparklines_need_no_unicode():
    assert sparkline(range(8), 8, ascii_only=True) == ASCII
