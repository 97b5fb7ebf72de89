"""The ordered lists are sound: proven by the validator, and the validator is proven to notice."""

from __future__ import annotations

import pytest

from foxhunt_cli.market.evaluate import _PER_STEP
from foxhunt_cli.pipeline.iteration import following, playing, training
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Stage
from foxhunt_cli.pipeline.validate import problems

# What the environment reports for evaluation, baselines and people; training itself does not read all of it.
REPORTED = {*_PER_STEP, "realised_delta_usd", "fill_vwap", "fill_cost_usd", "closed_trade_lots", "truncated", "diag_ring",
            "unfilled_lots", "reward_usd", "c51_atoms", "row_kl_reference", "target_rstd",
            "replay_next_lots", "replay_reward", "replay_discount"}  # fmt: skip
# A list without the policy update leaves the environment's learning-side outputs unread.
PLAY_ONLY = {"m1_rstd", "m2_rstd", "log_prob", "action_drawn", "overridden", "override_reason", "terminal", "v_all", "unrealised_usd", "held_steps"}


@pytest.mark.parametrize("encoder", ["mlp", "full"])
@pytest.mark.parametrize("rollout", [1, 4])
def test_training_list_is_sound(rollout: int, encoder: str) -> None:
    assert problems(training(Shape(rollout, encoder)), host_reads=REPORTED) == []


@pytest.mark.parametrize("steps", [playing, following])
def test_play_lists_are_sound(steps) -> None:
    assert problems(steps(Shape(2)), host_writes={"new_episode"}, host_reads=REPORTED | PLAY_ONLY) == []


def test_validator_sees_a_stage_that_comes_too_early() -> None:
    steps = training(Shape(2))
    index = next(i for i, s in enumerate(steps) if isinstance(s, Stage) and s.kernel == "gae_advantage")
    early = [steps[index], *steps[:index], *steps[index + 1 :]]
    assert any("gae_advantage" in line and "before any step wrote it" in line for line in problems(early, host_reads=REPORTED))


def test_validator_sees_work_in_vain() -> None:
    steps = [s for s in training(Shape(2)) if not (isinstance(s, Stage) and s.kernel == "ppo_clipped_surrogate_bwd")]
    found = problems(steps, host_reads=REPORTED)
    assert any("'pi_soft', which nothing reads" in line for line in found)
