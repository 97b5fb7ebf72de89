"""Sampled moments encoded anew: as they were stored while the target encoder rests, apart from that once it moves."""

from __future__ import annotations

import numpy as np
import pytest
from test_engine import differing, engine, state

from foxhunt_cli.config.load import ConfigError, load_config
from foxhunt_cli.isv.table import number
from foxhunt_cli.train.engine import DRIFT_EVERY, Engine

BUSY = ("isv.p_min=0.05", "isv.hindsight_forward_lookahead=10", "episode_len=64")
SAME = 2e-6  # products over other numbers of rows add up in another order
# A window's end has as many snapshots behind it as its iteration had, in a sequence some more: the memory fades.
OTHER_CONTEXT = 2e-2


def read(e: Engine, name: str) -> np.ndarray:
    return np.array(e.device.download(e.arrays[name]))


def set_slot(e: Engine, name: str, value: float) -> None:
    isv = read(e, "isv")
    isv[number(name)] = value
    e.device.write(e.arrays["isv"], isv)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def measured(e: Engine) -> float:
    e.drift.run()
    e.device.synchronize()
    return float(read(e, "isv")[number("ENCODING_DRIFT")])


@pytest.mark.parametrize("encoder", ["mlp", "full"])
def test_nothing_drifts_while_the_target_encoder_rests(encoder: str) -> None:
    """Before the critic learns no copy moves: a window gives the encoding that was stored, in any step."""
    e = engine(f"encoder={encoder}", *BUSY)
    while e.done < e.prefill_iterations:
        e.iterate()
    assert read(e, "replay_state")[1] > 100, "hardly anything is stored"
    assert 0 <= measured(e) < SAME
    start, steps, index = (read(e, name) for name in ("window_start", "window_state", "replay_index"))
    assert (start + steps == index[: len(start)]).all() and set(steps) == set(range(4))
    for _ in range(20):
        e.iterate()
    assert measured(e) > 1e-4


def test_a_moment_in_the_wrong_step_of_its_iteration_is_another_encoding() -> None:
    """The measurement would notice: with every birth one step late the same store seems to have drifted."""
    e = engine("encoder=full", *BUSY)
    while e.done < e.prefill_iterations:
        e.iterate()
    right = measured(e)
    e.device.write(e.arrays["store_birth"], read(e, "store_birth") + 1)
    assert measured(e) > 100 * max(right, 1e-7)


@pytest.mark.parametrize("encoder", ["mlp", "full"])
def test_fresh_encodings_are_the_stored_ones_while_the_target_encoder_rests(encoder: str) -> None:
    e = engine(f"encoder={encoder}", "replay_encoding=fresh", *BUSY)
    set_slot(e, "TARGET_TAU", 0.0)
    for _ in range(e.prefill_iterations + 30):
        e.iterate()
    slot = read(e, "sample_slot")
    assert read(e, "store_source")[slot].any(), "no hindsight among the samples"
    assert distance(read(e, "replay_h"), read(e, "store_h")[slot]) < SAME
    assert distance(read(e, "replay_next_h"), read(e, "store_next_h")[slot]) < OTHER_CONTEXT
    set_slot(e, "TARGET_TAU", 0.05)
    for _ in range(20):
        e.iterate()
    assert distance(read(e, "replay_h"), read(e, "store_h")[read(e, "sample_slot")]) > 1e-3


@pytest.mark.parametrize("choice", ["hindsight=path", "hindsight=none"])
def test_recorded_equals_eager(choice: str) -> None:
    recorded, eager = (engine("encoder=full", "replay_encoding=fresh", choice, f"graph={g}") for g in ("true", "false"))
    for _ in range(14):
        recorded.iterate()
        eager.current_plan().run_eager()
        eager.done += 1
    assert recorded.done > recorded.prefill_iterations
    assert differing(state(recorded), state(eager)) == []


def test_the_drift_is_measured_now_and_then_and_a_saved_run_goes_on_bit_for_bit() -> None:
    whole, first, second = (engine("encoder=mlp", *BUSY) for _ in range(3))
    seen = []
    for _ in range(DRIFT_EVERY + 10):
        whole.iterate()
        seen.append(float(read(whole, "isv")[number("ENCODING_DRIFT")]))
    assert seen[:DRIFT_EVERY] == [0.0] * DRIFT_EVERY and len(set(seen[DRIFT_EVERY:])) == 1 and seen[-1] > 0
    for _ in range(DRIFT_EVERY - 5):
        first.iterate()
    for name, saved in state(first).items():
        second.device.write(second.arrays[name], saved)
    second.done = first.done
    for _ in range(15):
        second.iterate()
    assert differing(state(whole), state(second)) == []


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
