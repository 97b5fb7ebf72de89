"""A bench for whole critic updates: replay, market, both heads in flat vectors as in a run, a tensor that only follows.

Used by the oracles of the fused update. Two rigs of the same seed begin with the same numbers, so that a list and the
fused kernels that stand for it can be run side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foxhunt_cli.buffers import arena
from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.isv.table import number
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.nets.params import CHUNK, Parameter, initial_values, lay_out
from foxhunt_cli.nets.target import split, target_chunks, target_layout
from foxhunt_cli.oracles.base import Trial
from foxhunt_cli.oracles.env_rig import random_market
from foxhunt_cli.oracles.head_rig import isv_values
from foxhunt_cli.pipeline import critic
from foxhunt_cli.pipeline.build import build, kernels_of, names_of
from foxhunt_cli.pipeline.stage import Step
from foxhunt_cli.pipeline.tables import buffers

ACTIONS, ATOMS, SNAPSHOTS, TAUS = 11, 21, 4000, 32
_ENCODER = Parameter("w_encoder", "HIDDEN_DIM, 50", "xavier", 1.0, "LR_AUX", encoder=True, target=True)
_POLICY = Parameter("w_policy", "HIDDEN_DIM, P", "xavier", 1.0, "LR_PI")
_VECTORS = ("params", "grads", "adam_m", "adam_v")
_STREAMS = ("rng_replay", "rng_c51_noise", "rng_c51_target_noise", "rng_tau", "rng_tau_next")
_SLOTS = {
    "c51_v_max": 3.0, "c51_v_min": -2.5, "loss_lambda_q": 0.8, "target_tau": 0.02, "gamma": 0.97, "reward_scale": 0.01,
    "lr_q": 1e-3, "iqn_lr": 5e-4, "weight_decay": 0.01, "per_alpha": 0.6, "per_beta": 0.5, "size_small": 1.0,
    "size_large": 2.0, "pyramid_max_units": 4.0, "per_max_priority": 1.5,
}  # fmt: skip


class CriticRig:
    """Everything that updates of ``rows`` rows touch, with P ``classes`` and a replay of ``capacity``."""

    def __init__(
        self, trial: Trial, rows: int, classes: int, capacity: int, *, seed: int = 1, latency: int = 1
    ) -> None:
        self.device = trial.device
        self.dims: dict[str, Any] = {
            "B": 1, "T": 1, "R": rows, "P": classes, "C": capacity, "N_TAU": TAUS, "N_SNAP": SNAPSHOTS, "W": 1, "K": 0,
            "latency": latency, "tick_value_usd": 12.5, "fee_usd": 2.0,
        }  # fmt: skip
        self.arrays: dict[str, Any] = {}
        rng = np.random.default_rng(seed)
        self._parameters(rng, seed)
        self._table = buffers()
        self._fill(rng, seed)

    def _parameters(self, rng: np.random.Generator, seed: int) -> None:
        """The flat vectors as a run lays them out, moments and targets with a past."""
        before = (_ENCODER, _POLICY)
        layout = lay_out((*before, *critic.parameters()), self.dims)
        target = target_layout(layout, self.dims)
        chunks = target_chunks(layout, target)
        border = lay_out(before, self.dims).size
        start = initial_values(layout, seed)
        real = np.zeros(layout.size, np.float32)  # 0 in the pads behind tensors, where a run has zeros for ever
        for name in layout.offsets:
            layout.view(real, name)[...] = 1.0
        start += 0.05 * rng.standard_normal(start.size).astype(np.float32) * real
        codes = dict(zip(("group_code", "branch_code", "encoder_code"), layout.chunk_codes(), strict=True))
        values = {
            "params": start,
            "grads": 1e-3 * rng.standard_normal(layout.size) * real,
            "adam_m": 1e-3 * rng.standard_normal(layout.size) * real,
            "adam_v": 1e-5 * rng.random(layout.size) * real,
            "target_params": (start + 0.02 * rng.standard_normal(layout.size) * real)
            .reshape(-1, CHUNK)[chunks]
            .ravel(),
        }
        for name, value in values.items():
            self.arrays[name] = self.device.upload(value.astype(np.float32))
        for name, code in codes.items():
            self.arrays[name] = self.device.upload(code)
        self.arrays["target_chunk"] = self.device.upload(chunks)
        self.arrays |= split(self.arrays, (layout.size - border) // CHUNK)
        self.arrays["adam_step"] = self.device.zeros((2, 6), np.uint32)
        self.arrays |= dict(zip(("adam_step_policy", "adam_step_critic"), self.arrays["adam_step"], strict=True))
        for name in layout.offsets:
            self.arrays[name] = layout.view(self.arrays["params"], name)
            self.arrays[f"grad_{name}"] = layout.view(self.arrays["grads"], name)
        for name in target.offsets:
            self.arrays[f"target_{name}"] = target.view(self.arrays["target_params"], name)
        for name, edge in (*((n, border) for n in _VECTORS), *((n, border // CHUNK) for n in codes)):
            self.arrays[f"{name}_policy"], self.arrays[f"{name}_critic"] = (
                self.arrays[name][:edge],
                self.arrays[name][edge:],
            )
        self.dims |= {
            "N_POLICY_CHUNKS": border // CHUNK,
            "N_CRITIC_CHUNKS": (layout.size - border) // CHUNK,
            "N_TARGET_CHUNKS": len(chunks),
        }

    def _fill(self, rng: np.random.Generator, seed: int) -> None:
        """Market, store, tree, slots, generators."""
        capacity, limit = self.dims["C"], (self.dims["P"] - 1) // 2
        for name, column in random_market(rng, SNAPSHOTS).columns().items():
            self.arrays[name] = self.device.upload(column)
        leaves = np.where(rng.random(capacity) < 0.3, 0.0, rng.exponential(1.0, capacity)).astype(np.float32)
        tree = np.zeros(2 * capacity, np.float32)
        tree[capacity:] = leaves
        for node in range(capacity - 1, 0, -1):
            tree[node] = tree[2 * node] + tree[2 * node + 1]
        given = {
            "isv": isv_values(**_SLOTS),
            "per_tree": tree,
            "store_h": rng.standard_normal((capacity, 128)),
            "store_next_h": rng.standard_normal((capacity, 128)),
            "store_index": rng.integers(0, SNAPSHOTS - 80, capacity),
            "store_n": rng.integers(1, 33, capacity),
            "store_lots": rng.integers(-limit, limit + 1, capacity),
            "store_next_lots": rng.integers(-limit, limit + 1, capacity),
            "store_action": rng.integers(0, ACTIONS, capacity),
            "store_return": rng.standard_normal(capacity),
            "store_discount": rng.uniform(0.7, 1.0, capacity),
            "store_terminal": rng.random(capacity) < 0.1,
            "adam_step": np.array([[3, 0, 2, 2, 1, 0], [0, 5, 0, 0, 0, 4]]),
            "ones_replay": np.ones(self.dims["R"] + TAUS),
        }
        for name, value in given.items():
            self.set(name, value)
        for name in _STREAMS:
            self.allocate({name})
            self.set(name, seed_states(seed, name, self.arrays[name].size))

    def allocate(self, names: set[str]) -> None:
        """Buffers of the table that are not there yet, zero."""
        missing = [self._table[name] for name in sorted(names - set(self.arrays)) if name in self._table]
        self.arrays.update(arena.allocate(self.device, missing, self.dims))

    def set(self, name: str, value: Any) -> None:
        """Overwrite a buffer, which is allocated if need be; the value is broadcast to its shape."""
        self.allocate({name})
        held = self.arrays[name]
        host = np.broadcast_to(np.asarray(value), held.shape).astype(str(held.dtype))
        self.device.write(held, np.ascontiguousarray(host))

    def get(self, name: str) -> np.ndarray:
        """Host copy."""
        return np.array(self.device.download(self.arrays[name]))

    def slot(self, name: str) -> float:
        """Value of an ISV slot."""
        return float(self.get("isv")[number(name)])

    def run(self, steps: Sequence[Step]) -> None:
        """The steps once; what they touch and the rig has not yet is allocated, zero."""
        self.allocate(names_of(steps))
        self.device.compile([kernel(name) for name in kernels_of(steps)])
        self.device.plan(build(steps, self.arrays, self.dims, self.device), use_graph=False).run_eager()
        self.device.synchronize()
