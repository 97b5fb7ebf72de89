"""A whole iteration on a device: recorded = eager bit for bit, nothing allocated, every gradient where it belongs."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from engines import differing, engine, fill, iterate, iterate_eagerly, read, state, still

from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.isv.table import ISV_SIZE, number


@pytest.mark.parametrize("encoder", ["mlp", "full"])
def test_recorded_equals_eager_bit_for_bit(encoder: str) -> None:
    three = ("controllers.rollout_steps=on", "isv.rollout_steps=6144")  # at first; advantages that are seen end that
    recorded, eager = (engine(f"encoder={encoder}", *three, f"graph={flag}") for flag in ("true", "false"))
    a, b = state(iterate(recorded, 20)), state(iterate_eagerly(eager, 20))
    assert differing(a, b) == []
    assert recorded.done > recorded.prefill_iterations, "the critic has not learned yet"
    passes = np.rint(recorded.drain()[:, number("ROLLOUT_STEPS")] / 2048)
    assert passes[0] == 3 and passes.min() < 3, "the number of passes never changed"
    assert np.isfinite(a["params"]).all() and np.abs(a["adam_m"]).max() > 0


def test_the_critic_begins_with_the_noise_and_the_taus_that_were_asked_for() -> None:
    e = engine("encoder=mlp", "isv.noisy_sigma0=0.25", "isv.iqn_n_tau=8")
    assert np.all(read(e, "sw_c51") == np.float32(0.25 / np.sqrt(128)))
    assert e.dims["N_TAU"] == 8
    lines = iterate(fill(e), 2).drain()
    assert lines[-1, number("IQN_N_TAU")] == 8 and np.isfinite(lines).all() and lines[-1, number("LOSS_IQN")] > 0
    with pytest.raises(ConfigError, match="iqn_n_tau: expected at most 32 taus, got 40"):
        engine("isv.iqn_n_tau=40")


@pytest.mark.parametrize("steps", [2048, 4096, 6144, 8192])
def test_passes_that_the_device_decides_equal_those_that_are_written_out(steps: int) -> None:
    """In the first iteration the controller holds its seed, so both lists make the same passes."""
    seeded = ("encoder=mlp", f"isv.rollout_steps={steps}", "isv.p_min=0.05")
    written, decided = (iterate(engine(*seeded, f"controllers.rollout_steps={s}"), 1) for s in ("fixed", "on"))
    assert differing(state(written), state(decided)) == []
    assert set(read(decided, "adam_step").ravel().tolist()) == {0, steps // 2048}, (
        "groups of the policy learn once a pass, those of the critic not yet"
    )


def test_a_further_pass_sees_new_encodings_and_keeps_its_targets() -> None:
    """Values move with the weights, what they are measured against stays, and the log-ratio leaves zero."""
    fixed = ("encoder=full", "controllers.rollout_steps=fixed", "isv.p_min=0.05")
    once, twice = (iterate(engine(*fixed, f"isv.rollout_steps={steps}"), 1) for steps in (2048, 4096))
    for name in ("advantage", "value_target", "adv_moments", "reward", "action_drawn"):
        assert (read(once, name) == read(twice, name)).all(), name
    for name in ("h", "value", "pi_all", "params"):
        assert (read(once, name) != read(twice, name)).any(), name


def test_one_step_rollouts_train() -> None:
    isv = iterate(engine("rollout=1", "episode_len=64"), 5).drain()
    assert isv.shape == (5, ISV_SIZE) and np.isfinite(isv).all()
    assert list(isv[:, number("TRAIN_STEP")]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("latency", [0, 1, 3])
@pytest.mark.parametrize("reward", ["mark_to_market", "realised"])
def test_every_latency_and_reward_trains(latency: int, reward: str) -> None:
    e = engine("encoder=mlp", f"latency_steps={latency}", f"reward={reward}", "isv.p_min=0.05")
    isv = iterate(e, 20).drain()
    assert np.isfinite(isv).all()
    assert isv[:, number("TRADES_CLOSED")].sum() > 0, "no trade closed in 80 steps of 4 rows with a floor of 5 %"


def test_every_tensor_learns_and_the_pad_stays_zero() -> None:
    e = engine("encoder=full", "isv.p_min=0.05")
    before = read(e, "params")
    iterate(e, 40)
    assert still(e, before) == []
    pad = np.ones(e.layout.size, bool)
    for start, shape in e.layout.offsets.values():
        pad[start : start + int(np.prod(shape))] = False
    assert (read(e, "params")[pad] == 0).all()


def test_nothing_is_allocated_inside_an_iteration() -> None:
    """CUDA: the pool stands still from the second iteration on. CPU: so does what Python's allocator holds."""
    e = iterate(engine("encoder=full"), 3)
    e.device.synchronize()
    if e.device.kind == "cuda":
        before, free = e.device.pool_usage(), []
        for _ in range(5):
            free.append(e.device.memory()[0])
            iterate(e, 20)
            e.device.synchronize()
        assert e.device.pool_usage() == before
        # Other programs come and go on a card; what an iteration takes would be missing after every twenty of them.
        free.append(e.device.memory()[0])
        assert any(a == b for a, b in zip(free, free[1:], strict=False)), free
        return
    tracemalloc.start()
    e.iterate()
    first = tracemalloc.get_traced_memory()[0]
    iterate(e, 20)
    grown = tracemalloc.get_traced_memory()[0] - first
    tracemalloc.stop()
    assert grown < 4096, f"{grown} bytes were allocated in 20 iterations and are still held"
