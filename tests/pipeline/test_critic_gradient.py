"""``--critic-grad``: the critic's loss on an iteration's moments, its gradient at the encodings, whom it teaches."""

from __future__ import annotations

import numpy as np
import pytest
from engines import FOUR, MARKET, built, differing, engine, fill, iterate, iterate_eagerly, read, state

from foxhunt_cli.config.load import ConfigError, load_config
from foxhunt_cli.isv.table import number
from foxhunt_cli.pipeline import critic, encoding, iteration
from foxhunt_cli.pipeline.build import build
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fused, Step, chosen
from foxhunt_cli.train.engine import Engine
from foxhunt_cli.train.shapes import shape_of

ON = ("critic_grad=true", "encoder=mlp", "isv.p_min=0.05")
MOMENTS = 16  # batch 4 x rollout 4
# Central differences in float32, step 1e-2 of encodings of order 0.3: rounding of a loss of order 3 over the step.
STEP, TOLERANCE = 1e-2, 2e-2


def _lesson_alone(shape: Shape) -> list[Step]:
    """Encodings, environment steps, and the lesson on a gradient that is zero."""
    steps: list[Step | Fused] = [
        *encoding.before_steps(shape, draw_episodes=True, policy=True, features=True),
        *iteration.environment_steps(shape, iteration.policy_head.draw()),
        *critic.teach(shape),
        *critic.encoder_lesson(shape),
    ]
    return chosen(steps, shape.fusion)


def lesson_engine(*sets: str) -> Engine:
    e = built(load_config(sets=[MARKET, *FOUR, "precision=fp32", *ON, *sets]), _lesson_alone)
    e.device.write(e.arrays["params"], read(e, "params") * np.float32(3.0))  # heads that tell moments apart
    return e


def test_the_gradient_is_that_of_the_loss() -> None:
    """Mean cross-entropy and quantile loss of all moments, by central differences at the largest elements."""
    e = lesson_engine(f"replay_batch={MOMENTS}")
    e.device.write(e.arrays["grad_h"], np.zeros((5, 4, 128), np.float32))
    e.iterate()
    gradient, h = read(e, "grad_h")[:4].reshape(MOMENTS, 128), read(e, "h")
    assert np.abs(gradient).max() > 0 and (read(e, "is_weight") == 1.0).all()
    noise = {name: read(e, name) for name in ("c51_noise", "c51_target_noise", "iqn_tau", "iqn_tau_next")}

    shape = shape_of(load_config(sets=["batch=4", "rollout=4", "updates=2", *ON, f"replay_batch={MOMENTS}"]))
    lesson = critic.encoder_lesson(shape)
    drawn = {"rl_sample_noise", "rl_sample_tau"}
    again = chosen([s for s in lesson if getattr(s, "kernel", "") not in drawn], "none")
    plan = e.device.plan(build(again, e.arrays, e.dims, e.device))

    def loss(moved: np.ndarray) -> float:
        e.device.write(e.arrays["h"], moved)
        for name, values in noise.items():
            e.device.write(e.arrays[name], values)
        plan.run()
        e.device.synchronize()
        iqn = read(e, "iqn_slot_loss").reshape(MOMENTS, 11)
        return float(read(e, "c51_class_loss").mean(dtype=np.float64) + iqn.mean(dtype=np.float64))

    for place in np.argsort(-np.abs(gradient).reshape(-1))[:6]:
        up, down = h.copy(), h.copy()
        up.reshape(-1)[place] += STEP
        down.reshape(-1)[place] -= STEP
        slope = (loss(up) - loss(down)) / (2 * STEP)
        assert slope == pytest.approx(gradient.reshape(-1)[place], rel=TOLERANCE, abs=2e-6)


@pytest.mark.parametrize("rows", [5, 8])
def test_a_small_replay_batch_gives_the_same_gradient_in_parts(rows: int) -> None:
    found = []
    for size in (MOMENTS, rows):
        e = lesson_engine(f"replay_batch={size}")
        e.device.write(e.arrays["grad_h"], np.ones((5, 4, 128), np.float32))
        e.iterate()
        found.append(read(e, "grad_h"))
    whole, parts = found
    assert (whole[4] == 1).all() and np.abs(whole[:4] - 1).max() > 0
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-6)


def test_windows_end_within_the_iteration() -> None:
    e = lesson_engine(f"replay_batch={MOMENTS}", "isv.n_step=3")
    e.iterate()
    steps, cursor = np.repeat(np.arange(4), 4), np.tile(read(e, "cursor"), 4)
    assert (read(e, "replay_index") == cursor + steps).all()
    assert (read(e, "replay_n") == np.minimum(3, 4 - steps)).all()
    target = read(e, "target_h")
    ends = target[np.minimum(steps + 3, 4), np.tile(np.arange(4), 4)]
    np.testing.assert_array_equal(read(e, "replay_next_h"), ends)
    np.testing.assert_array_equal(read(e, "replay_lots"), read(e, "position_before").reshape(-1))


def test_it_teaches_the_encoder_and_no_head() -> None:
    """Iteration for iteration from the same state: only what lies before the heads gets another gradient."""
    on, off = fill(engine(*ON)), fill(engine("encoder=mlp", "isv.p_min=0.05"))
    assert differing(state(on), state(off)) == []
    for e in (on, off):
        e.iterate()
    for name in ("grad_w_pi", "grad_w_v", "grad_w_frd2", "grad_w_direction"):
        np.testing.assert_array_equal(read(on, name), read(off, name), err_msg=name)
    for name in ("grad_w_mlp1", "grad_w_mlp2"):
        assert (read(on, name) != read(off, name)).any(), name


@pytest.mark.parametrize("choice", ["iqn=true", "iqn=false", "noisy=false"])
def test_recorded_equals_eager(choice: str) -> None:
    recorded, eager = (engine(*ON, "encoder=full", choice, f"graph={flag}") for flag in ("true", "false"))
    assert differing(state(iterate(recorded, 14)), state(iterate_eagerly(eager, 14))) == []
    assert recorded.done > recorded.prefill_iterations
    assert np.isfinite(read(recorded, "isv")).all() and read(recorded, "isv")[number("NONFINITE_COUNT")] == 0


@pytest.mark.parametrize("sets", [["updates=0"], ["hindsight=close"], ["preset=seed"]])
def test_it_needs_path_targets(sets: list[str]) -> None:
    with pytest.raises(ConfigError, match="critic_grad needs a critic that learns from path targets"):
        load_config(sets=["critic_grad=true", *sets])
