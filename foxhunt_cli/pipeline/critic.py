"""The critic: replay, path targets, C51 and IQN, their target copies, and what they teach the policy.

What the critic sees is encoded by the target encoder: stored encodings of the moving encoder make it unstable even when
they are a dozen updates old. Where the encoding knows the position (the recipe of the seeds) it sees the encoder's own.
"""

from __future__ import annotations

from dataclasses import replace

from foxhunt_cli.nets import c51, c51_update, distill, iqn, spectral, target
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.nets.target import CriticBatch
from foxhunt_cli.pipeline import fresh, learn
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fused, Stage, Step, Zero, chosen
from foxhunt_cli.replay import hindsight, path_targets, per

_PATH_BATCH, _EXECUTED_BATCH = CriticBatch(discount="path_discount"), CriticBatch()


def parameters(*, quantiles: bool = True, sigma0: float = c51.SIGMA0) -> tuple[Parameter, ...]:
    """Every tensor the critic's updates own. quantiles: there is a quantile head beside C51. sigma0: as in ``c51``."""
    return (*c51.parameters(sigma0), *(iqn.PARAMETERS if quantiles else ()))


def encode(shape: Shape) -> list[Step]:
    """Critic features of all T + 1 states, by the target encoder; nothing where the critic sees the encoder's own."""
    if shape.sees_position:
        return []
    return learn.ENCODERS[shape.encoder].forward(learn.snapshots(shape), "target_", shape.batch)


def store(shape: Shape) -> list[Step | Fused]:
    """Every moment whose successors exist goes to the replay, then hindsight's; the tree above them is renewed."""
    features, sizes = shape.features, (shape.capacity, shape.batch, shape.rollout)
    steps, launches = per.push(features), per.push_at_once(features)
    if shape.injects:
        steps += hindsight.inject(shape.directions, features)
        launches += hindsight.inject_at_once(shape.directions, features)
    steps += per.tree_of_pushed(*sizes)
    launches += per.tree_of_pushed_at_once(*sizes, features)
    return [Fused(tuple(launches), tuple(steps), exact=True)]


def values(shape: Shape) -> list[Step | Fused]:
    """Ensemble values of every class and action at this iteration's states, without noise; which actions are alike."""
    rows = shape.rollout * shape.batch
    chunk = min(rows, shape.replay_batch)
    found = distill.action_values(rows, chunk, shape.features, quantiles=shape.quantiles)
    return [*path_targets.table(), *c51.support(), *found]


def choice(shape: Shape) -> Stage:
    """The critic's own action in one environment step, by ``values``."""
    return Stage("rl_q_action_kernel", {"by_position": str(int(shape.path))})


def teach(shape: Shape) -> list[Step | Fused]:
    """The values, distilled into the policy's gradient."""
    return [*(values(shape) if shape.distils else c51.support()), *lesson(shape)]


def lesson(shape: Shape) -> list[Step | Fused]:
    """The distillation alone: a further pass meets the same values, no critic tensor has moved since."""
    if not shape.distils:
        return [*distill.reference()]
    return [distill.lesson(all_classes=shape.every_class, by_position=shape.path)]


def encoder_lesson(shape: Shape) -> list[Step | Fused]:
    """grad_h += gradient of the critic's loss on this iteration's own moments, R at a time.

    Its tensors do not learn here. Nothing where the run does not ask for it. Behind ``teach``, whose atoms it uses.
    """
    if not shape.critic_teaches_encoder:
        return []
    steps: list[Step | Fused] = [
        *_table(shape),
        *(c51.draw_noise() if shape.noisy else c51.no_noise()),
        *c51.compose_noise(),
        *([*iqn.draw_taus(), *iqn.embed_taus()] if shape.quantiles else ()),
    ]
    moments = shape.rollout * shape.batch
    for row0 in range(0, moments, shape.replay_batch):
        rows = str(min(shape.replay_batch, moments - row0))
        batch, place = replace(_PATH_BATCH, rows=rows), {"row0": str(row0), "rows": rows}
        steps += [
            Stage("rl_moment_batch", {**place, "target_h": shape.features}),
            Stage("rl_path_targets", {"R": rows}),
            Zero("critic_grad_h"),
            c51.either_forward(batch),
            *c51.loss_and_backward(batch, 0, path=True, grad_h="critic_grad_h"),
        ]
        if shape.quantiles:
            steps += [
                *iqn.forward(batch, path=True),
                *iqn.loss_and_backward(batch, path=True, grad_h="critic_grad_h"),
            ]
        steps.append(Stage("rl_add_encoding_gradient", place))
    return steps


def updates(shape: Shape) -> list[Step | Fused]:
    """U replay updates, each with fresh noise and taus, then the once-an-iteration care of the heads."""
    steps: list[Step | Fused] = [*_table(shape), *(update(shape, number) for number in range(shape.updates))]
    return [*steps, *spectral.care()]


def _table(shape: Shape) -> list[Step]:
    """next_class for path targets, where ``values`` did not write it in this iteration."""
    return path_targets.table() if shape.path and not shape.distils else []


def update(shape: Shape, number: int) -> Fused:
    """Replay update ``number`` of the iteration; behind the last, how far the target head is.

    The launches move the target encoder behind the last update, where no update before it has encoded anything.
    """
    path, batch = shape.path, _PATH_BATCH if shape.path else _EXECUTED_BATCH
    again = fresh.instead_of_stored(shape) if shape.fresh else []
    quantiles = [iqn.update(batch, path=path, rows=shape.replay_batch)] if shape.quantiles else []
    steps: tuple[Step | Fused, ...] = (
        per.batch(path=path),
        *again,
        *(c51.draw_noise() if shape.noisy else c51.no_noise()),
        *c51.compose_noise(),
        c51.either_forward(batch),
        *c51.loss_and_backward(batch, number, path=path),
        *quantiles,
        learn.optimiser("critic"),
        per.priorities(shape.capacity, shape.replay_batch),
        *target.polyak(),
        *(c51.divergence() if number + 1 == shape.updates else ()),
    )
    follow: list[Step] = []
    if not shape.sees_position and (shape.fresh or number + 1 == shape.updates):
        follow = [target.follow(1 if shape.fresh else shape.updates)]
    launches = c51_update.launches(
        c51_update.Update(batch, number, shape.updates, shape.replay_batch, path=path, noisy=shape.noisy),
        chosen(again, "tf32"),
        chosen(quantiles, "tf32"),
    )
    return Fused((*launches, *follow), steps, tf32=True)
