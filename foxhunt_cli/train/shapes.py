"""From the run's configuration to the shape of its ordered list: sizes, choices, frozen controllers, what is fused.

Owns what a preset or a setting leaves out. It touches no device but to ask what it can do.
"""

from __future__ import annotations

import numpy as np

from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.device.base import Device
from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.iqn import TAUS_MAX
from foxhunt_cli.pipeline import control
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Fusion
from foxhunt_cli.replay.capacity import check_capacity, default_capacity

PASSES_MAX, STEPS_A_PASS = 4, 2048  # on-policy passes an iteration, and what one is in slot ROLLOUT_STEPS

_OF_THE_CRITIC = {
    "target_tau", "per_alpha", "per_beta", "distill_lambda", "distill_temperature", "atom_span", "gates", "n_step",
}  # fmt: skip
_OF_DISTILLATION = {"distill_lambda", "distill_temperature"}


def shape_of(config: RunConfig, device: Device | None = None) -> Shape:
    """What of the config decides the ordered list; without a device the list of the CPU, where nothing is fused.

    Raises ConfigError on a replay capacity that cannot serve B x T, and on an unknown controller.
    """
    b, t, wanted = config.batch, config.rollout, config.replay_capacity
    try:
        capacity = default_capacity(b, t) if wanted is None else check_capacity(wanted, b, t)
    except ValueError as error:
        raise ConfigError(f"replay_capacity: {error}") from None
    return Shape(
        rollout=t,
        batch=b,
        encoder=config.encoder,
        context=config.context,
        updates=config.updates,
        replay_batch=config.replay_batch,
        capacity=capacity,
        n_step=n_step_of(config),
        fresh=config.replay_encoding == "fresh" and config.updates > 0,
        hindsight=config.hindsight,
        directions=config.hindsight_directions,
        entry_gates=config.entry_gates,
        frozen=frozen_controllers(config),
        plateau=config.lr_plateau,
        passes=passes_of(config),
        every_class=config.distillation == "classes",
        distils=config.distillation != "off",
        quantiles=config.iqn,
        noisy=config.noisy,
        critic_teaches_encoder=config.critic_grad,
        reproject=config.reward == "mark_to_market",
        fusion=fusion_of(config, device),
    )


def fusion_of(config: RunConfig, device: Device | None) -> Fusion:
    """Fused kernels run on a GPU unless the config says no; those with TF32 products where all products are TF32.

    These are written for Hopper, and measured there: some take more shared memory than older cards give a block.
    """
    if device is None or device.kind != "cuda" or not config.fused:
        return "none"
    return "tf32" if device.tensor_cores and device.precision == "tf32" else "float32"


def frozen_controllers(config: RunConfig) -> frozenset[str]:
    """The preset's frozen controllers, changed by ``controllers.<name> = "fixed" | "on"``. Raises ConfigError."""
    frozen = set(control.FROZEN[config.preset])
    for name, state in config.controllers.items():
        if name not in control.CONTROLLERS:
            known = ", ".join(control.CONTROLLERS)
            raise ConfigError(f"controllers.{name}: no such controller; there are {known}")
        (frozen.add if state == "fixed" else frozen.discard)(name)
    if not config.updates:
        frozen |= _OF_THE_CRITIC
    if config.distillation == "off":
        frozen |= _OF_DISTILLATION
    if not _seed(config, "N_STEP_ANNEAL_STEPS"):
        frozen.add("n_step")
    return frozenset(frozen)


def n_step_of(config: RunConfig) -> int:
    """Steps of a replay window, at most: an annealed n begins with the largest."""
    return round(_seed(config, "N_STEP" if "n_step" in frozen_controllers(config) else "N_STEP_START"))


def taus_of(config: RunConfig) -> int:
    """Taus of an IQN update, slot IQN_N_TAU. Raises ConfigError above what the kernels have room for."""
    taus = round(float(seed_values(config.isv, config.preset)[number("IQN_N_TAU")]))
    if taus > TAUS_MAX:
        raise ConfigError(f"isv.iqn_n_tau: expected at most {TAUS_MAX} taus, got {taus}")
    return taus


def passes_of(config: RunConfig) -> int:
    """On-policy passes an iteration has at most: what slot ROLLOUT_STEPS is fixed at, else all there can be."""
    if "rollout_steps" not in frozen_controllers(config):
        return PASSES_MAX
    steps = _seed(config, "ROLLOUT_STEPS")
    return int(np.clip(np.floor(steps / STEPS_A_PASS + 0.5), 1, PASSES_MAX))


def _seed(config: RunConfig, slot: str) -> float:
    return float(seed_values(config.isv, config.preset)[number(slot)])
