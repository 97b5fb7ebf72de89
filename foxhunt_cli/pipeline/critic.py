"""The critic: replay, path targets, C51 and IQN, their target copies, and what they teach the policy.

What the critic sees is encoded by the target encoder: stored encodings of the moving encoder make it unstable even when
they are a dozen updates old. Where the encoding knows the position (the recipe of the seeds) it sees the encoder's own.
"""

from __future__ import annotations

from foxhunt_cli.nets import c51, distill, iqn, popart, spectral, target
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.nets.target import CriticBatch
from foxhunt_cli.pipeline import fresh, learn
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fused, Step
from foxhunt_cli.replay import hindsight, path_targets, per

_PATH_BATCH, _EXECUTED_BATCH = CriticBatch(discount="path_discount"), CriticBatch()


def parameters(*, quantiles: bool = True) -> tuple[Parameter, ...]:
    """Every tensor the critic's updates own; quantiles: there is a quantile head beside C51."""
    return (*c51.PARAMETERS, *(iqn.PARAMETERS if quantiles else ()))


def encode(shape: Shape) -> list[Step]:
    """Critic features of all T + 1 states, by the target encoder; nothing where the critic sees the encoder's own."""
    if shape.sees_position:
        return []
    return learn.ENCODERS[shape.encoder].forward(learn.snapshots(shape), "target_")


def store(shape: Shape) -> list[Step]:
    """Every moment whose successors exist goes to the replay, then hindsight's; the tree above them is renewed."""
    return [
        *per.push(shape.features),
        *(hindsight.inject(shape.directions, shape.features) if shape.injects else ()),
        *per.tree_of_pushed(shape.capacity, shape.batch, shape.rollout),
    ]


def values(shape: Shape) -> list[Step | Fused]:
    """Ensemble values of every class and action at this iteration's states, without noise."""
    rows = shape.rollout * shape.batch
    chunk = min(rows, shape.replay_batch)
    return [*c51.support(), *distill.action_values(rows, chunk, shape.features, quantiles=shape.quantiles)]


def teach(shape: Shape) -> list[Step | Fused]:
    """The values, distilled into the policy's gradient."""
    return [*(values(shape) if shape.distils else c51.support()), *lesson(shape)]


def lesson(shape: Shape) -> list[Step | Fused]:
    """The distillation alone: a further pass meets the same values, no critic tensor has moved since."""
    return [distill.lesson(all_classes=shape.every_class)] if shape.distils else [*distill.reference()]


def updates(shape: Shape) -> list[Step | Fused]:
    """U replay updates, each with fresh noise and taus, then the once-an-iteration care of the heads."""
    path, batch = shape.path, _PATH_BATCH if shape.path else _EXECUTED_BATCH
    steps: list[Step | Fused] = [*(path_targets.table() if path else ())]
    for update in range(shape.updates):
        steps += [
            *per.sample(),
            *(fresh.instead_of_stored(shape) if shape.fresh else ()),
            *(path_targets.targets() if path else ()),
            *(c51.draw_noise() if shape.noisy else c51.no_noise()),
            *c51.compose_noise(),
            *c51.forward(batch),
            *c51.loss_and_backward(batch, update, path=path),
            *([iqn.update(batch, path=path)] if shape.quantiles else ()),
            *learn.optimiser("critic"),
            *per.update_priorities(shape.capacity, shape.replay_batch),
            *target.polyak(),
        ]
    return [*steps, *target.divergence(), *spectral.cap("q"), *spectral.cap("pi"), *popart.update()]
