"""THE ordered list: what one training iteration does, from the first kernel to the last.

Read top to bottom: it is the program. Everything above it prepares, everything below it executes.
"""

from __future__ import annotations

from foxhunt_cli.nets import frd, policy
from foxhunt_cli.pipeline import control, critic, learn, rollout
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Stage, Step, at
from foxhunt_cli.replay import hindsight


def training(shape: Shape, *, learn_critic: bool = True) -> list[Step]:
    """One iteration: T environment steps of all rows, then the learning from them.

    learn_critic False: the replay still fills, the critic neither learns nor teaches (the first iterations of a run).
    """
    critic_on = shape.critic and learn_critic
    return [
        *_windows(draw_episodes=True),
        *rollout.iteration_begin(),
        *learn.forward(shape),
        *(critic.encode(shape) if shape.critic else ()),
        *(frd.forward() if shape.entry_gates else ()),
        *_environment_steps(shape, policy.draw(), train=True),
        *rollout.after_rollout(control.before_reward_controllers(shape.frozen)),
        *control.after_rollout_controllers(shape.frozen, plateau=shape.plateau, reproject=shape.critic),
        *(critic.store(shape) if shape.critic else ()),
        *learn.update(shape, critic.teach(shape) if critic_on else ()),
        *(critic.updates(shape) if critic_on else ()),
        *control.after_updates_controllers(critic=critic_on),
        Stage("rl_loss_total"),
        Stage("rl_diag_record"),
        Stage("gpu_advance_cursor"),
    ]


def playing(shape: Shape) -> list[Step]:
    """One iteration of evaluation: the greedy policy, no learning; the host has set the cursors."""
    return [
        *_windows(draw_episodes=False),
        *rollout.iteration_begin(),
        *learn.forward(shape),
        *_environment_steps(shape, policy.draw(greedy="1")),
        Stage("gpu_advance_cursor"),
    ]


def playing_by_value(shape: Shape) -> list[Step]:
    """One iteration of evaluation of the critic: the action of greatest ensemble value, noise off."""
    return [
        *_windows(draw_episodes=False),
        *rollout.iteration_begin(),
        *learn.inputs(shape),
        *critic.encode(shape),
        *critic.values(shape),
        *_environment_steps(shape, Stage("rl_q_action_kernel")),
        Stage("gpu_advance_cursor"),
    ]


def following(shape: Shape) -> list[Step]:
    """One iteration of a rule-based baseline: the data column ``signal`` names the wanted side of each snapshot."""
    return [
        *rollout.iteration_begin(),
        *_environment_steps(shape, Stage("rl_signal_action")),
        Stage("gpu_advance_cursor"),
    ]


def _windows(draw_episodes: bool) -> list[Step]:
    draw = [Stage("gpu_sample_starts")] if draw_episodes else []
    return [*draw, Stage("snap_feature_assemble_batched", {"offset": "0"})]


def _environment_steps(shape: Shape, draw: Stage, *, train: bool = False) -> list[Step]:
    """T steps: draw, gates, overrides, fill, bookkeeping; in training hindsight watches every step."""
    steps: list[Step] = []
    for t in range(shape.rollout):
        gates = control.entry_gates(t, critic.FEATURES) if train and shape.entry_gates else ()
        steps.append(Stage(draw.kernel, {**draw.remap, **at(t)}))
        steps.extend(rollout.environment_step(t, gates))
        if train and shape.injects:
            steps.extend(hindsight.track(t))
    return steps
