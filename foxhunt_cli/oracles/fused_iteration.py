"""Oracles of the fused kernels that change no bit: whole iterations with them leave what those without them leave."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.pipeline import control
from foxhunt_cli.train.engine import Engine, build_engine
from foxhunt_cli.train.prepare import prepare_training

EVERY = 8  # iterations; all arrays are compared after so many
_SMALL = {
    "batch": 9, "rollout": 4, "encoder": "mlp", "replay_batch": 32, "updates": 1, "replay_capacity": 2048,
    "episode_len": 64, "synthetic": {"snapshots": 12_000},
}  # fmt: skip
_LIVELY = {"p_min": 0.05, "hindsight_forward_lookahead": 8.0}
_CHOICES = {
    "defaults": {},
    "no latency, rows that fill no block": {"latency_steps": 0, "batch": 33, "replay_capacity": 4096},
    "sums in several parts, more steps than a tile": {
        "batch": 16, "rollout": 40, "episode_len": 80, "replay_capacity": 4096,
    },
    "rewards at closes": {"latency_steps": 3, "reward": "realised"},
    "hindsight at the peak": {"hindsight": "peak"},
    "all controllers": {"controllers": dict.fromkeys(control.CONTROLLERS, "on")},
    "no controller but one": {
        "controllers": {name: "fixed" for name in control.CONTROLLERS if name != "per_beta"},
    },
    "windows that become shorter": {"isv": {**_LIVELY, "n_step": 2, "n_step_start": 24, "n_step_anneal_steps": 48}},
    "policy alone": {"updates": 0},
    "windows of an encoder with time": {"encoder": "full", "batch": 5},
}  # fmt: skip
_SEED = {"preset": "seed", "batch": 5, "encoder": "mlp", "replay_batch": 32, "replay_capacity": 1024,
         "episode_len": 64, "synthetic": {"snapshots": 12_000}}  # fmt: skip


def _engines(trial: Trial, config: RunConfig) -> tuple[Engine, Engine]:
    """The same run with plain kernels and with the fused ones."""
    market = load_market_data(None, config.data, config.synthetic)
    plain, fused = (
        build_engine(trial.device, config, prepare_training(trial.device, market, config), fusion=fusion)
        for fusion in ("none", "exact")
    )
    return plain, fused


def _differing(a: Engine, b: Engine) -> list[str]:
    """Arrays that both have and that are not the same bits; but for scratch that differs by its norm."""
    names = sorted((a.arrays.keys() & b.arrays.keys()) - {"spectral_q_v", "spectral_pi_v"})
    pairs = ((n, *(e.device.download(e.arrays[n]) for e in (a, b))) for n in names)
    return [name for name, x, y in pairs if np.array(x).tobytes() != np.array(y).tobytes()]


def _compare(trial: Trial, label: str, config: RunConfig, iterations: int = 2 * EVERY) -> None:
    plain, fused = _engines(trial, config)
    apart: list[str] = []
    for iteration in range(1, iterations + 1):
        plain.iterate()
        fused.iterate()
        if iteration % EVERY == 0:
            apart = apart or _differing(plain, fused)
    trial.true(f"{label}: fewer operations", fused.operations < plain.operations, fused.operations)
    trial.true(f"{label}: no array differs", not apart, apart or "none")
    trial.true(f"{label}: the critic has learned", not config.updates or plain.done > plain.prefill_iterations)
    trial.true(f"{label}: trades", int(np.array(plain.device.download(plain.arrays["fee_sides"])).sum()) > 0)


@oracle("fused")
def iterations_with_exact_kernels_equal_plain_ones(trial: Trial) -> None:
    """Latencies, rewards, kinds of hindsight, controllers on and off; every array, bit for bit."""
    for label, choice in _CHOICES.items():
        _compare(trial, label, RunConfig.model_validate({**_SMALL, "isv": _LIVELY, **choice}))


@oracle("fused")
def iterations_of_preset_seed_equal_plain_ones(trial: Trial) -> None:
    """One step an iteration, entry gates, every controller on."""
    isv = {"p_min": 0.05, "gate_warmup_steps": 8.0}
    _compare(trial, "preset seed", RunConfig.model_validate({**_SEED, "isv": isv}), 4 * EVERY)
