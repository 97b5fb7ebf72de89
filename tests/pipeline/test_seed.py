"""Preset seed whole: one-step iterations whose encoding knows the position; config, lists, runs, signals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from engines import MARKET, built, differing, iterate, iterate_eagerly, put, read, state, still

from foxhunt_cli.config.load import ConfigError, load_config
from foxhunt_cli.config.run import preset_fields
from foxhunt_cli.isv.table import number, slots
from foxhunt_cli.nets import policy
from foxhunt_cli.nets.params import CHUNK
from foxhunt_cli.pipeline import critic, encoding, iteration
from foxhunt_cli.pipeline.iteration import training
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Stage, Step, chosen
from foxhunt_cli.train.engine import Engine
from foxhunt_cli.train.shapes import shape_of

BUSY = ("isv.p_min=0.05", "isv.gate_warmup_steps=20", "isv.hindsight_forward_lookahead=10")


def seed_engine(batch: int, *sets: str, steps: Callable[[Shape], Sequence[Step]] = training) -> Engine:
    return built(load_config(sets=["preset=seed", MARKET, f"batch={batch}", *sets]), steps)


def played(batch: int, iterations: int, *sets: str) -> tuple[Engine, np.ndarray]:
    e = seed_engine(batch, *BUSY, *sets)
    drained = []
    for _ in range(iterations):
        e.iterate()
        if e.done % 50 == 0:
            drained.append(e.drain())
    return e, np.concatenate([*drained, e.drain()])


def test_preset_sets_every_field_and_the_user_wins() -> None:
    config = load_config(sets=["preset=seed", "batch=7"])
    assert config.replay_batch == 7
    for name, value in preset_fields("seed").items():
        assert getattr(config, name) == value
    assert load_config(sets=["preset=seed", "reward=mark_to_market", "replay_batch=64"]).reward == "mark_to_market"
    assert load_config(sets=["preset=seed", "replay_batch=64"]).replay_batch == 64
    default = shape_of(load_config())
    assert (default.context, default.rollout, default.entry_gates) == ("heads", 16, False)
    shape = shape_of(config)
    assert shape.sees_position and shape.plateau and not shape.every_class
    assert shape.frozen == {"n_step"}, "every controller runs, and n has nothing to fall from"


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["context=encoder"], ["context = encoder", "rollout = 1", "16", "--rollout 1"]),
        (["context=encoder", "rollout=1"], ["path", "context = heads"]),
        (["preset=seed", "rollout=4"], ["rollout = 1", "4"]),
        (["preset=seed", "hindsight=path"], ["path", "context = heads"]),
        (["preset=seed", "hindsight=path", "context=heads"], ["entry_cost_usd is 15", "preset seed", "0"]),
        (["isv.hold_bonus_usd=0.5"], ["hold_bonus_usd is 0.5", "--set isv.hold_bonus_usd=0.5"]),
        (["isv.anti_martingale_gain=0.5"], ["anti_martingale_gain"]),
        (["isv.short_hold_penalty=0.5"], ["short_hold_penalty is 0.5", "need 1"]),
        (["updates=0", "entry_gates=true"], ["entry_gates", "updates = 0"]),
        (["preset=seeds"], ["preset", "seeds"]),
    ],
)
def test_choices_that_do_not_fit_are_one_clear_error(sets: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(sets=sets)
    for word in words:
        assert word in str(caught.value)


def test_shaping_is_free_without_path_targets() -> None:
    load_config(sets=["hindsight=close", "isv.hold_bonus_usd=0.5"])
    load_config(sets=["updates=0", "isv.entry_cost_usd=15"])


def _without_learning(shape: Shape) -> list[Step]:
    steps = [
        *encoding.before_steps(shape, draw_episodes=True, policy=True, features=True),
        *iteration.environment_steps(shape, policy.draw(), gates=False),
        *encoding.behind_steps(shape),
        Stage("gpu_advance_cursor"),
    ]
    return chosen(steps, shape.fusion)


@pytest.mark.parametrize("encoder", ["full", "mlp"])
def test_the_state_behind_a_step_is_the_state_before_the_next(encoder: str) -> None:
    """Window, context, streaming features, gaps: what bootstraps and what acts next are the same bits."""
    e = seed_engine(4, f"encoder={encoder}", "isv.p_min=0.08", "episode_len=64", steps=_without_learning)
    compared = in_trade = 0
    behind = None
    for _ in range(100):
        e.iterate()
        h, fresh = read(e, "h"), read(e, "new_episode").astype(bool)
        if behind is not None:
            assert (h[0][~fresh] == behind[~fresh]).all()
            compared += int((~fresh).sum())
        behind = h[1]
        x = read(e, "x_next")
        assert (x[:, :, 40:] == x[:1, :, 40:]).all(), "context and multi-resolution columns differ between snapshots"
        held = read(e, "position_lots")
        assert ((x[0, :, 42] != 0) == (held != 0)).all()
        in_trade += int((held != 0).sum())
    assert compared > 300 and in_trade > 50


def test_the_context_term_stays_zero_and_everything_else_learns() -> None:
    e = seed_engine(4, *BUSY)
    before = read(e, "params")
    assert sorted(still(iterate(e, 150), before)) == ["w_pi_ctx", "w_v_ctx"]
    assert e.arrays["w_pi"].shape == (128, 11) and e.arrays["w_c51"].shape == (128, 11 * 21)


@pytest.mark.parametrize("encoder", ["full", "mlp"])
def test_an_encoder_that_the_critic_sees_itself_has_no_target_copy(encoder: str) -> None:
    e = seed_engine(2, f"encoder={encoder}")
    copies = {name for name in e.layout.offsets if f"target_{name}" in e.arrays}
    assert copies == {tensor.name for tensor in critic.parameters()}
    sizes = [np.prod(e.layout.offsets[name][1]) for name in copies]
    assert sum(sizes) <= e.arrays["target_params"].size < sum(sizes) + CHUNK * len(sizes)


@pytest.mark.parametrize("batch", [1, 16])
def test_two_hundred_steps_are_finite_and_trade(batch: int) -> None:
    e, isv = played(batch, 200)
    assert isv.shape[0] == 200 and np.isfinite(isv).all()
    assert not e.faulted()
    assert isv[:, number("TRADES_CLOSED")].sum() > 0


def test_recorded_equals_eager_and_two_runs_are_identical() -> None:
    recorded, again, eager = (seed_engine(3, *BUSY, f"graph={flag}") for flag in ("true", "true", "false"))
    want = state(iterate(recorded, 40))
    assert recorded.done > recorded.prefill_iterations
    assert differing(want, state(iterate_eagerly(eager, 40))) == []
    assert differing(want, state(iterate(again, 40))) == []


def test_saved_state_goes_on_bit_for_bit() -> None:
    whole, first, second = (seed_engine(3, *BUSY, "episode_len=32") for _ in range(3))
    put(second, state(iterate(first, 25)))
    second.done = first.done
    assert differing(state(iterate(whole, 60)), state(iterate(second, 35))) == []


@pytest.mark.parametrize("batch", [1, 16])
def test_signals_live_after_a_thousand_steps(batch: int) -> None:
    _, isv = played(batch, 1000, "encoder=mlp")
    assert np.isfinite(isv).all()
    dead = [slot.name for slot in slots() if 416 < slot.number < 427 and not isv[-1, slot.number]]
    assert dead == []
    second = isv[500:]
    assert second[:, number("TRADES_CLOSED")].sum() > 0
    assert isv[:, number("HINDSIGHT_INJECT_COUNT")].sum() > 0 and isv[:, number("HINDSIGHT_FORWARD_COUNT")].sum() > 0
    moved = ("GAMMA", "TARGET_TAU", "REWARD_SCALE", "Q_DISTILL_LAMBDA", "Q_DISTILL_TEMPERATURE", "LR_PI",
             "LOSS_LAMBDA_Q")  # fmt: skip
    assert [name for name in moved if isv[-1, number(name)] == isv[0, number(name)]] == []
