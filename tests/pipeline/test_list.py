"""The ordered lists are sound: proven by the validator, and the validator is proven to notice."""

from __future__ import annotations

import pytest

from foxhunt_cli.market.plays import PER_STEP
from foxhunt_cli.pipeline import control, fresh
from foxhunt_cli.pipeline.iteration import following, playing, playing_by_value, training
from foxhunt_cli.pipeline.judging import judging
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fused, Stage
from foxhunt_cli.pipeline.validate import problems, writes
from foxhunt_cli.train.engine import _kernels_done

# What the environment reports for evaluation, baselines and people; training itself does not read all of it.
REPORTED = {*PER_STEP, "realised_delta_usd", "fill_vwap", "fill_cost_usd", "closed_trade_lots", "truncated",
            "diag_ring", "unfilled_lots", "reward_usd", "c51_atoms", "row_kl_reference", "target_rstd", "fresh_rstd",
            "replay_next_lots", "replay_reward", "replay_discount"}  # fmt: skip
# A list without the policy update leaves the environment's learning-side outputs unread.
PLAY_ONLY = {"m1_rstd", "m2_rstd", "log_prob", "action_drawn", "overridden", "override_reason", "terminal", "v_all",
             "unrealised_usd", "held_steps"}  # fmt: skip

NO_CRITIC = frozenset(
    {"target_tau", "per_alpha", "per_beta", "distill_lambda", "distill_temperature", "atom_span", "gates", "n_step"}
)
CHOICES = {
    "default": {},
    "mlp": {"encoder": "mlp"},
    "one step": {"rollout": 1},
    "policy alone": {"updates": 0, "frozen": NO_CRITIC},
    "executed action": {"hindsight": "none"},
    "close label": {"hindsight": "close", "directions": "backward"},
    "no injections": {"directions": "off"},
    "entry gates": {"entry_gates": True, "plateau": True},
    "C51 alone": {"quantiles": False},
    "no noise": {"noisy": False},
    "nothing taught": {"distils": False},
    "critic teaches the encoder": {"critic_teaches_encoder": True, "replay_batch": 40, "passes": 4},
    "fresh encodings": {"fresh": True},
    "fresh encodings, mlp, executed action": {"fresh": True, "encoder": "mlp", "hindsight": "none"},
    "nothing taught, executed action": {"distils": False, "quantiles": False, "hindsight": "peak"},
    "four passes": {"passes": 4},
    "three passes, fixed": {"passes": 3, "frozen": frozenset({"rollout_steps"})},
}
SEED = {"rollout": 1, "context": "encoder", "updates": 1, "replay_batch": 16, "hindsight": "close", "entry_gates": True,
        "plateau": True, "every_class": False, "reproject": False}  # fmt: skip
CHOICES |= {"preset seed": SEED, "preset seed, mlp": {**SEED, "encoder": "mlp", "passes": 4}}
# The executed action needs neither the stored snapshot nor the window's length.
EXECUTED = {"replay_index", "replay_n"}
# An encoder that knows the position gives policy and values at once; the action gap matters for all classes only.
SEES_POSITION = {"pi_all", "v_all", "action_gap", "atom_span_before"}


@pytest.mark.parametrize("learn_critic", [True, False])
@pytest.mark.parametrize("choice", CHOICES)
def test_training_list_is_sound(choice: str, learn_critic: bool) -> None:
    shape = Shape(**{"rollout": 4, **CHOICES[choice]})
    reads = REPORTED | (set() if shape.path else EXECUTED) | (SEES_POSITION if shape.sees_position else set())
    assert problems(training(shape, learn_critic=learn_critic), host_reads=reads) == []


@pytest.mark.parametrize(
    "choice", [{"rollout": 2}, {"rollout": 2, "entry_gates": True}, SEED, {**SEED, "encoder": "mlp"}]
)
@pytest.mark.parametrize("steps", [playing, playing_by_value, following])
def test_play_lists_are_sound(steps, choice: dict) -> None:
    found = problems(
        steps(Shape(**choice)), host_writes={"new_episode"}, host_reads=REPORTED | PLAY_ONLY | SEES_POSITION
    )
    assert found == []


@pytest.mark.parametrize("fusion", ["float32", "tf32"])
@pytest.mark.parametrize("choice", ["default", "mlp", "entry gates", "preset seed", "fresh encodings", "four passes"])
def test_every_list_has_decided_what_is_fused(choice: str, fusion: str) -> None:
    shape = Shape(**{"rollout": 4, **CHOICES[choice], "fusion": fusion})
    for steps in (training, playing, playing_by_value, following, judging, fresh.drift):
        assert not [step for step in steps(shape) if isinstance(step, Fused)], steps.__name__


def test_a_fused_kernel_is_not_said_to_do_what_the_run_leaves_out() -> None:
    """One that can do every controller stands for those that are not frozen."""
    for frozen in (frozenset(), frozenset({"gamma", "gates"})):
        fused, plain = (
            set(_kernels_done([training], Shape(4, fusion=fusion, frozen=frozen))) for fusion in ("tf32", "none")
        )
        assert plain < fused, "nothing is fused"
        assert ("rl_controller_gamma" in fused) == ("gamma" not in frozen)
        assert fused & set(control.CONTROLLERS.values()) == plain & set(control.CONTROLLERS.values())


@pytest.mark.parametrize("choice", [{}, {"encoder": "mlp"}, {"fresh": True}])
def test_the_list_that_measures_drift_is_sound(choice: dict) -> None:
    steps = fresh.drift(Shape(4, **choice))
    batch = {name for step in steps[:1] for name in writes(step)}  # of a sample only slot and moment matter here
    assert problems(steps, host_reads=REPORTED | {*batch, "replay_next_h"}) == []


def test_validator_sees_a_stage_that_comes_too_early() -> None:
    steps = training(Shape(2))
    index = next(i for i, s in enumerate(steps) if isinstance(s, Stage) and s.kernel == "gae_advantage")
    early = [steps[index], *steps[:index], *steps[index + 1 :]]
    assert any(
        "gae_advantage" in line and "before any step wrote it" in line for line in problems(early, host_reads=REPORTED)
    )


def test_validator_sees_work_in_vain() -> None:
    steps = [s for s in training(Shape(2)) if not (isinstance(s, Stage) and s.kernel == "rl_c51_path_loss")]
    found = problems(steps, host_reads=REPORTED)
    assert any("'c51_next_prob', which nothing reads" in line for line in found)
