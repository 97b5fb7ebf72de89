"""Sampled moments encoded anew: as they were stored while the target encoder rests, apart from that once it moves."""

from __future__ import annotations

import numpy as np
import pytest
from engines import differing, engine, fill, iterate, iterate_eagerly, put, read, slot, state

from foxhunt_cli.config.load import ConfigError, load_config
from foxhunt_cli.isv.table import number
from foxhunt_cli.train.engine import DRIFT_EVERY, Engine

BUSY = ("isv.p_min=0.05", "isv.hindsight_forward_lookahead=10", "episode_len=64")
SAME = 2e-6  # products over other numbers of rows add up in another order
# A window's end has as many snapshots behind it as its iteration had, in a sequence some more: the memory fades.
OTHER_CONTEXT = 2e-2


def set_slot(e: Engine, name: str, value: float) -> None:
    isv = read(e, "isv")
    isv[number(name)] = value
    e.device.write(e.arrays["isv"], isv)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def measured(e: Engine) -> float:
    e.drift.run()
    e.device.synchronize()
    return slot(e, "ENCODING_DRIFT")


@pytest.mark.parametrize("encoder", ["mlp", "full"])
def test_nothing_drifts_while_the_target_encoder_rests(encoder: str) -> None:
    """Before the critic learns no copy moves: a window gives the encoding that was stored, in any step."""
    e = fill(engine(f"encoder={encoder}", *BUSY))
    assert read(e, "replay_state")[1] > 100, "hardly anything is stored"
    assert 0 <= measured(e) < SAME
    start, steps, index = (read(e, name) for name in ("window_start", "window_state", "replay_index"))
    assert (start + steps == index[: len(start)]).all() and set(steps) == set(range(4))
    iterate(e, 20)
    assert measured(e) > 1e-4


def test_a_moment_in_the_wrong_step_of_its_iteration_is_another_encoding() -> None:
    """The measurement would notice: with every birth one step late the same store seems to have drifted."""
    e = fill(engine("encoder=full", *BUSY))
    right = measured(e)
    e.device.write(e.arrays["store_birth"], read(e, "store_birth") + 1)
    assert measured(e) > 100 * max(right, 1e-7)


@pytest.mark.parametrize("encoder", ["mlp", "full"])
def test_fresh_encodings_are_the_stored_ones_while_the_target_encoder_rests(encoder: str) -> None:
    e = engine(f"encoder={encoder}", "replay_encoding=fresh", *BUSY)
    set_slot(e, "TARGET_TAU", 0.0)
    iterate(fill(e), 30)
    sampled = read(e, "sample_slot")
    assert read(e, "store_source")[sampled].any(), "no hindsight among the samples"
    assert distance(read(e, "replay_h"), read(e, "store_h")[sampled]) < SAME
    assert distance(read(e, "replay_next_h"), read(e, "store_next_h")[sampled]) < OTHER_CONTEXT
    set_slot(e, "TARGET_TAU", 0.05)
    iterate(e, 20)
    assert distance(read(e, "replay_h"), read(e, "store_h")[read(e, "sample_slot")]) > 1e-3


@pytest.mark.parametrize("choice", ["hindsight=path", "hindsight=none"])
def test_recorded_equals_eager(choice: str) -> None:
    recorded, eager = (engine("encoder=full", "replay_encoding=fresh", choice, f"graph={g}") for g in ("true", "false"))
    assert differing(state(iterate(recorded, 14)), state(iterate_eagerly(eager, 14))) == []
    assert recorded.done > recorded.prefill_iterations


def test_the_drift_is_measured_now_and_then_and_a_saved_run_goes_on_bit_for_bit() -> None:
    whole, first, second = (engine("encoder=mlp", *BUSY) for _ in range(3))
    seen = []
    for _ in range(DRIFT_EVERY + 10):
        whole.iterate()
        seen.append(slot(whole, "ENCODING_DRIFT"))
    assert seen[:DRIFT_EVERY] == [0.0] * DRIFT_EVERY and len(set(seen[DRIFT_EVERY:])) == 1 and seen[-1] > 0
    put(second, state(iterate(first, DRIFT_EVERY - 5)))
    second.done = first.done
    assert differing(state(whole), state(iterate(second, 15))) == []


def test_where_encodings_cannot_be_made_again_nothing_is_said_of_them() -> None:
    e = engine("preset=seed", "rollout=1", "updates=1", "encoder=mlp")
    assert e.drift is None and "rl_encoding_drift" not in e.kernels
    assert "rl_encoding_drift" in engine("encoder=mlp").kernels


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["preset=seed", "replay_encoding=fresh"], "context = heads"),
        (["replay_encoding=fresh", "hindsight=close"], "hindsight = path or none"),
        (["replay_encoding=new"], "replay_encoding"),
    ],
)
def test_choices_that_do_not_fit(sets: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_config(sets=sets)
