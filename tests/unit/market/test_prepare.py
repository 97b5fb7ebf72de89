"""Preparing a data set: columns, sizes, legal starts, sigmas, and the refusals a user may meet."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_cli.config.dims import FRD_HORIZONS, WARMUP_SNAPSHOTS
from foxhunt_cli.config.instruments import presets
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.record import SNAPSHOT
from foxhunt_cli.data.report import CleaningReport
from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.isv.table import number
from foxhunt_cli.market import prepare, windows
from foxhunt_cli.oracles.features import COLUMNS, random_columns

ROLLOUT, LATENCY = 16, 1


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return CpuDevice()


def market(n: int, session_start: tuple[int, ...] = (0,), seed: int = 0) -> MarketData:
    records = np.zeros(n, SNAPSHOT)
    for name, value in random_columns(seed, n, session_start).items():
        records[name] = value
    starts = np.array(session_start, np.int64)
    return MarketData(records, starts, presets()["ES"], 0, CleaningReport(), "random books", "digest")


def run(device: CpuDevice, data: MarketData, **options) -> prepare.PreparedData:
    return prepare.prepare_data(device, data, seed_values({}), rollout=ROLLOUT, latency=LATENCY, **options)


def test_columns_hold_the_records_whatever_the_block(device, monkeypatch):
    data = market(1000, (0, 300))
    whole = run(device, data)
    monkeypatch.setattr(prepare, "BLOCK_RECORDS", 97)
    pieces = run(device, data)
    for name in COLUMNS:
        np.testing.assert_array_equal(device.download(whole.arrays[name]), data.records[name])
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(device.download(array), device.download(pieces.arrays[name]), err_msg=name)


def test_sizes_and_instrument_are_those_of_the_data(device):
    prepared = run(device, market(700))
    assert (prepared.n_snapshots, prepared.n_spans) == (700, 1)
    assert prepared.instrument == presets()["ES"]


def test_every_episode_stays_in_its_session(device):
    starts, n, length = np.array([0, 400, 420, 900]), 1500, 320
    prepared = run(device, market(n, tuple(starts)), episode_len=length)
    first, cumulative = (device.download(prepared.arrays[name]) for name in ("span_first", "span_cumulative"))
    end = device.download(prepared.arrays["session_end"])
    legal = np.concatenate([f + np.arange(c) for f, c in zip(first, np.diff(cumulative), strict=True)])
    assert len(legal) == cumulative[-1]
    begin = starts[np.searchsorted(starts, legal, side="right") - 1]
    assert (legal - WARMUP_SNAPSHOTS >= begin).all()
    assert (legal + length + LATENCY < end[legal]).all()
    assert any("1 of 4 sessions" in note for note in prepared.notes)


def test_no_label_looks_past_its_session(device):
    prepared = run(device, market(1000, (0, 400)))
    labels, end = (device.download(prepared.arrays[name]) for name in ("frd_label", "session_end"))
    ahead = (np.arange(1000)[:, None] + np.array(FRD_HORIZONS)) < end[:, None]
    np.testing.assert_array_equal(labels >= 0, ahead)
    assert any("1000 snapshots" in note for note in prepared.notes)


def test_sigmas_are_fitted_to_the_data_given_and_no_other(device):
    data = market(3000)
    training, held_out = data.range(0, 2000), data.range(2000, 3000)
    fitted = run(device, training).sigmas
    data.records["bid_px"][2000:] += 40  # held-out data, changed
    np.testing.assert_array_equal(run(device, data.range(0, 2000)).sigmas, fitted)
    own, given = run(device, held_out), run(device, held_out, sigmas=fitted)
    np.testing.assert_array_equal(given.sigmas, fitted)
    assert not np.array_equal(own.sigmas, fitted)
    labels = [device.download(p.arrays["frd_label"]) for p in (own, given)]
    assert not np.array_equal(*labels)
    isv = prepare.with_sigmas(seed_values({}), fitted)
    assert isv[number("FRD_SIGMA_MEDIUM")] == fitted[1]


@pytest.mark.parametrize(
    ("longest", "wanted", "length"),
    [(9999, None, 4096), (4130, None, 4096), (4129, None, 4080), (66, None, 32), (500, 100, 96), (50, 16, 16)],
)
def test_length_of_an_episode(longest, wanted, length):
    assert windows.choose_episode_len(longest, ROLLOUT, LATENCY, wanted, "training") == length


@pytest.mark.parametrize(
    ("longest", "wanted", "words"),
    [
        (65, None, "longest session has 65 snapshots, an episode of 32 steps (rollout 16) needs 66"),
        (49, 16, "needs 50"),
        (200, 10, "give at least 32"),
        (200, 200, "give episode_len 160 or less"),
    ],
)
def test_too_little_data_says_how_much_is_needed(longest, wanted, words):
    with pytest.raises(DataError) as error:
        windows.choose_episode_len(longest, ROLLOUT, LATENCY, wanted, "training")
    assert words in str(error.value)


def test_short_data_and_rounding_are_told(device):
    assert "1,000 snapshots, so an episode has 960 steps" in run(device, market(1000)).notes[0]
    assert run(device, market(1000), episode_len=100).notes[0].startswith("episode_len 100 rounded down to 96")
    assert run(device, market(4800)).notes == ()


def test_data_that_do_not_fit_are_refused_before_anything_is_allocated(device, monkeypatch):
    data = market(1000)
    need = sum(array.nbytes for array in run(device, data).arrays.values())
    monkeypatch.setattr(device, "memory", lambda: (need // 2, 10 * need))
    monkeypatch.setattr(device, "zeros", None)
    with pytest.raises(DataError) as error:
        run(device, data)
    message = str(error.value)
    assert "1,000 snapshots need" in message and "--start/--end" in message
    fits = int(message.split("--max-snapshots ")[1].split()[0])
    assert 0 < fits < 500


def test_segments_tile_sessions_and_mark_their_starts():
    first, restart = windows.segments(np.array([0, 5, 6]), 13, 3)
    assert first.tolist() == [0, 3, 5, 6, 9, 12, 13]
    assert restart.tolist() == [1, 0, 1, 1, 0, 0]


def test_sigmas_do_not_depend_on_the_block(monkeypatch):
    data = market(5000, (0, 1700))
    whole, _ = windows.forward_sigmas(data.records, data.session_start)
    monkeypatch.setattr(windows, "SIGMA_BLOCK", 333)
    pieces, _ = windows.forward_sigmas(data.records, data.session_start)
    np.testing.assert_array_equal(whole, pieces)


def test_a_market_of_a_handful_of_snapshots_has_finite_sigmas():
    data = market(20)
    sigmas, missing = windows.forward_sigmas(data.records, data.session_start)
    assert missing == FRD_HORIZONS and np.isfinite(sigmas).all() and (sigmas > 0).all()
