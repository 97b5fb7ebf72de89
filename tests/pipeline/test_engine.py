"""A whole iteration on a device: recorded = eager bit for bit, nothing allocated, every gradient where it belongs.

``FOXHUNT_TEST_DEVICE=cuda`` runs the same bodies on a GPU, where "recorded" is a captured graph.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from foxhunt_cli.config.load import ConfigError, load_config
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.device.select import select
from foxhunt_cli.isv.table import number
from foxhunt_cli.train.checkpoint import state_names
from foxhunt_cli.train.engine import Engine, build_engine, compile_run
from foxhunt_cli.train.prepare import prepare_training

DEVICE = os.environ.get("FOXHUNT_TEST_DEVICE", "cpu")


def engine(*sets: str) -> Engine:
    config = load_config(
        sets=["batch=4", "rollout=4", "synthetic.snapshots=12000", "replay_batch=32", "updates=2", *sets]
    )
    device = select(DEVICE, precision=config.precision).device
    market = load_market_data(None, config.data, config.synthetic)
    compile_run(device, config)
    return build_engine(device, config, prepare_training(device, market, config))


def state(e: Engine) -> dict[str, np.ndarray]:
    return {name: np.array(e.device.download(e.arrays[name])) for name in state_names(e)}


def differing(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> list[str]:
    return [name for name in a if a[name].tobytes() != b[name].tobytes()]


@pytest.mark.parametrize("encoder", ["mlp", "full"])
def test_recorded_equals_eager_bit_for_bit(encoder: str) -> None:
    three = ("controllers.rollout_steps=on", "isv.rollout_steps=6144")  # at first; advantages that are seen end that
    recorded, eager = (engine(f"encoder={encoder}", *three, f"graph={flag}") for flag in ("true", "false"))
    for _ in range(20):
        recorded.iterate()
        eager.current_plan().run_eager()
        eager.done += 1
    a, b = state(recorded), state(eager)
    assert differing(a, b) == []
    assert recorded.done > recorded.prefill_iterations, "the critic has not learned yet"
    passes = np.rint(recorded.drain()[:, number("ROLLOUT_STEPS")] / 2048)
    assert passes[0] == 3 and passes.min() < 3, "the number of passes never changed"
    assert np.isfinite(a["params"]).all() and np.abs(a["adam_m"]).max() > 0


def test_the_critic_begins_with_the_noise_and_the_taus_that_were_asked_for() -> None:
    e = engine("encoder=mlp", "isv.noisy_sigma0=0.25", "isv.iqn_n_tau=8")
    sigma = np.array(e.device.download(e.arrays["sw_c51"]))
    assert np.all(sigma == np.float32(0.25 / np.sqrt(128)))
    assert e.dims["N_TAU"] == 8
    for _ in range(e.prefill_iterations + 2):
        e.iterate()
    lines = e.drain()
    assert lines[-1, number("IQN_N_TAU")] == 8 and np.isfinite(lines).all() and lines[-1, number("LOSS_IQN")] > 0
    with pytest.raises(ConfigError, match="iqn_n_tau: expected at most 32 taus, got 40"):
        engine("isv.iqn_n_tau=40")


@pytest.mark.parametrize("steps", [2048, 4096, 6144, 8192])
def test_passes_that_the_device_decides_equal_those_that_are_written_out(steps: int) -> None:
    """In the first iteration the controller holds its seed, so both lists make the same passes."""
    seeded = ("encoder=mlp", f"isv.rollout_steps={steps}", "isv.p_min=0.05")
    written, decided = (engine(*seeded, f"controllers.rollout_steps={state}") for state in ("fixed", "on"))
    for e in (written, decided):
        e.iterate()
    assert differing(state(written), state(decided)) == []
    updates = np.array(decided.device.download(decided.arrays["adam_step"]))
    assert set(updates.ravel().tolist()) == {0, steps // 2048}, (
        "groups of the policy learn once a pass, those of the critic not yet"
    )


def test_a_further_pass_sees_new_encodings_and_keeps_its_targets() -> None:
    """Values move with the weights, what they are measured against stays, and the log-ratio leaves zero."""
    once, twice = (engine("encoder=full", f"isv.rollout_steps={n}", "controllers.rollout_steps=fixed", "isv.p_min=0.05")
                   for n in (2048, 4096))  # fmt: skip
    for e in (once, twice):
        e.iterate()
    read = lambda e, name: np.array(e.device.download(e.arrays[name]))  # noqa: E731
    for name in ("advantage", "value_target", "adv_moments", "reward", "action_drawn"):
        assert (read(once, name) == read(twice, name)).all(), name
    for name in ("h", "value", "pi_all", "params"):
        assert (read(once, name) != read(twice, name)).any(), name


def test_one_step_rollouts_train() -> None:
    e = engine("rollout=1", "episode_len=64")
    for _ in range(5):
        e.iterate()
    isv = e.drain()
    assert isv.shape == (5, 640) and np.isfinite(isv).all()
    assert list(isv[:, 608]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("latency", [0, 1, 3])
@pytest.mark.parametrize("reward", ["mark_to_market", "realised"])
def test_every_latency_and_reward_trains(latency: int, reward: str) -> None:
    e = engine("encoder=mlp", f"latency_steps={latency}", f"reward={reward}", "isv.p_min=0.05")
    for _ in range(20):
        e.iterate()
    isv = e.drain()
    assert np.isfinite(isv).all()
    assert isv[:, 603].sum() > 0, "no trade closed in 80 steps of 4 rows with a floor of 5 %"


def test_every_tensor_learns_and_the_pad_stays_zero() -> None:
    e = engine("encoder=full", "isv.p_min=0.05")
    before = np.array(e.device.download(e.arrays["params"]))
    for _ in range(40):
        e.iterate()
    after = np.array(e.device.download(e.arrays["params"]))
    inside = np.zeros(e.layout.size, bool)
    still = []
    for name, (start, shape) in e.layout.offsets.items():
        span = slice(start, start + int(np.prod(shape)))
        inside[span] = True
        if (before[span] == after[span]).all():
            still.append(name)
    assert still == []
    assert (after[~inside] == 0).all()


def test_nothing_is_allocated_inside_an_iteration() -> None:
    """CUDA: the pool stands still from the second iteration on. CPU: so does what Python's allocator holds."""
    e = engine("encoder=full")
    for _ in range(3):
        e.iterate()
    e.device.synchronize()
    if e.device.kind == "cuda":
        before, free = e.device.pool_usage(), []
        for _ in range(5):
            free.append(e.device.memory()[0])
            for _ in range(20):
                e.iterate()
            e.device.synchronize()
        assert e.device.pool_usage() == before
        # Other programs come and go on a card; what an iteration takes would be missing after every twenty of them.
        free.append(e.device.memory()[0])
        assert any(a == b for a, b in zip(free, free[1:], strict=False)), free
        return
    import tracemalloc

    tracemalloc.start()
    e.iterate()
    first = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        e.iterate()
    grown = tracemalloc.get_traced_memory()[0] - first
    tracemalloc.stop()
    assert grown < 4096, f"{grown} bytes were allocated in 20 iterations and are still held"
