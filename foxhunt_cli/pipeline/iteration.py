"""THE ordered list: what one training iteration does, from the first kernel to the last.

Read top to bottom: it is the program. Everything above it prepares, everything below it executes. Where a fused kernel
does several steps at once, ``chosen`` puts it in their place; what the steps are is said by the builders alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from foxhunt_cli.nets import frd
from foxhunt_cli.nets import policy as policy_head
from foxhunt_cli.pipeline import control, critic, encoding, learn, rollout
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fused, Stage, Step, at, chosen
from foxhunt_cli.replay import hindsight


def training(shape: Shape, *, learn_critic: bool = True) -> list[Step]:
    """One iteration: T environment steps of all rows, then the learning from them.

    learn_critic False: the replay still fills, the critic neither learns nor teaches (the first iterations of a run).
    """
    critic_on = shape.critic and learn_critic
    to_encoder = critic.encoder_lesson(shape) if critic_on else ()
    span = control.atom_span(shape.frozen, reproject=shape.critic and shape.reproject)
    steps: list[Step | Fused] = [
        *control.n_step(shape.frozen),
        *(span if shape.reproject else ()),
        *encoding.before_steps(shape, draw_episodes=True, policy=True, features=shape.critic),
        *(frd.forward() if shape.entry_gates else ()),
        *environment_steps(shape, policy_head.draw(), track=shape.injects),
        *encoding.behind_steps(shape),
        *control.end_of_rollout(shape.frozen, plateau=shape.plateau),
        *(() if shape.reproject else span),
        *(critic.store(shape) if shape.critic else ()),
        *learn.update(shape, critic.teach(shape) if critic_on else (), to_encoder),
        *learn.further_passes(shape, critic.lesson(shape) if critic_on else (), to_encoder),
        *(critic.updates(shape) if critic_on else ()),
        *control.end_of_iteration(critic=critic_on),
    ]
    return chosen(steps, shape.fusion)


def playing(shape: Shape) -> list[Step]:
    """One iteration of evaluation: the greedy policy, no learning; the host has set the cursors."""
    return _played(shape, policy_head.draw(greedy="1"), policy=True, features=shape.entry_gates)


def playing_by_value(shape: Shape) -> list[Step]:
    """One iteration of evaluation of the critic: the action of greatest ensemble value, noise off."""
    return _played(shape, critic.choice(shape), critic.values(shape), policy=shape.entry_gates, features=True)


def following(shape: Shape) -> list[Step]:
    """One iteration of a rule-based baseline: the data column ``signal`` names the wanted side of each snapshot."""
    steps: list[Step | Fused] = [
        *rollout.iteration_begin(),
        *environment_steps(shape, Stage("rl_signal_action"), gates=False),
        Stage("gpu_advance_cursor"),
    ]
    return chosen(steps, shape.fusion)


def _played(
    shape: Shape, draw: Stage, values: Sequence[Step | Fused] = (), *, policy: bool, features: bool
) -> list[Step]:
    steps: list[Step | Fused] = [
        *encoding.before_steps(shape, draw_episodes=False, policy=policy, features=features),
        *values,
        *(frd.forward() if shape.entry_gates else ()),
        *environment_steps(shape, draw, evaluation=True),
        *encoding.follow_market(shape),
        Stage("gpu_advance_cursor"),
    ]
    return chosen(steps, shape.fusion)


def environment_steps(
    shape: Shape, draw: Stage, *, gates: bool = True, evaluation: bool = False, track: bool = False
) -> list[Step | Fused]:
    """T steps: draw, gates where the run has them, overrides, fill, bookkeeping. track: hindsight watches each step."""
    steps: list[Step] = []
    launches: list[Step] = []
    judged = shape.entry_gates and gates
    for t in range(shape.rollout):
        drawn = Stage(draw.kernel, {**draw.remap, **at(t)})
        judges = control.entry_gates(t, shape.features, evaluation=evaluation) if judged else ()
        steps += [drawn, *rollout.environment_step(t, judges), *(hindsight.track(t) if track else ())]
        if judged:
            launches += [drawn, *control.judged_step(t, shape.features, evaluation=evaluation)]
    if not judged:
        launches = rollout.whole_rollout(draw)
    launches += hindsight.track_all() if track else ()
    return [Fused(tuple(launches), tuple(steps), exact=True)]
