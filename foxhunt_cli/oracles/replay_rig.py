"""A bench for the replay: its buffers under small sizes, plans kept by name, and a push reference in plain Python.

Used by the oracles of replay and hindsight and by ``foxhunt bench replay``. Owns no checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foxhunt_cli.buffers.replay import ROWS
from foxhunt_cli.buffers.table import shape
from foxhunt_cli.device.base import Device
from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.isv.table import ISV_SIZE, number, slots
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.pipeline.build import build, kernels_of
from foxhunt_cli.pipeline.stage import Step
from foxhunt_cli.pipeline.tables import buffers

H = 128

# What the pipeline gives the replay each iteration, and the state vector.
_INPUTS = (
    "isv", "cursor", "new_episode", "target_h", "reward", "position_before", "position_after", "action", "terminal",
    "truncated", "c51_td",
)  # fmt: skip


class ReplayRig:
    """Arrays by buffer name on a device; ``run`` executes a list of steps, recorded at its first use.

    extra: buffers beside those of the replay and what the pipeline gives it. scalars: dimensions beside its own.
    """

    def __init__(
        self, device: Device, *, batch: int, rollout: int, capacity: int, rows: int = 64, lot_limit: int = 4,
        seed: int = 1, extra: Sequence[str] = (), isv: Mapping[str, float] | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> None:  # fmt: skip
        self.device = device
        self.double = device.double
        self.dims: dict[str, Any] = {
            "B": batch, "T": rollout, "C": capacity, "R": rows, "P": 2 * lot_limit + 1, "latency": 1,
            "tick_value_usd": 12.5, "fee_usd": 2.0, **(scalars or {}),
        }  # fmt: skip
        self._plans: dict[str, Any] = {}
        self.arrays: dict[str, Any] = {}
        for row in (*ROWS, *(buffers()[name] for name in (*_INPUTS, *extra))):
            self.arrays[row.name] = device.zeros(shape(row, self.dims), self._dtype(row.dtype))
        values = np.zeros(ISV_SIZE)
        for slot in slots():
            values[slot.number] = slot.seed
        self.set(isv=values, rng_replay=seed_states(seed, "replay", rows))
        self.slots(**(isv or {}))

    def _dtype(self, dtype: str) -> str:
        return "float64" if self.double and dtype == "float32" else dtype

    def set(self, **values: Any) -> None:
        """Overwrite buffers; a value is broadcast to the buffer's shape."""
        for name, value in values.items():
            held = self.arrays[name]
            host = np.broadcast_to(np.asarray(value), held.shape).astype(str(held.dtype))
            self.device.write(held, np.ascontiguousarray(host))

    def add(self, name: str, value: np.ndarray) -> None:
        """A device array of the case's own (data columns)."""
        value = np.ascontiguousarray(value)
        self.arrays[name] = self.device.upload(value.astype(self._dtype(str(value.dtype))))

    def slots(self, **values: float) -> None:
        """Set ISV slots by upper-case name."""
        vector = self.get("isv")
        for name, value in values.items():
            vector[number(name)] = value
        self.set(isv=vector)

    def slot(self, name: str) -> float:
        """Value of an ISV slot."""
        return float(self.get("isv")[number(name)])

    def get(self, name: str) -> np.ndarray:
        """Host copy of a buffer."""
        return np.array(self.device.download(self.arrays[name]))

    def state(self, index: int) -> int:
        """One counter of replay_state."""
        return int(self.get("replay_state")[index])

    def leaves(self) -> np.ndarray:
        """Priorities by slot."""
        return self.get("per_tree")[self.dims["C"] :]

    def plan(self, steps: Sequence[Step]) -> Any:
        """The steps, compiled and recorded."""
        self.device.compile([kernel(name) for name in kernels_of(steps)])
        return self.device.plan(build(steps, self.arrays, self.dims, self.device), use_graph=False)

    def run(self, steps: Sequence[Step]) -> None:
        """Run the steps once."""
        key = repr(steps)
        if key not in self._plans:
            self._plans[key] = self.plan(steps)
        self._plans[key].run_eager()
        self.device.synchronize()


@dataclass
class Transition:
    """One window as the reference sees it."""

    birth: int
    row: int
    n: int
    index: int
    lots: int
    next_lots: int
    action: int
    value: float
    discount: float
    terminal: int
    h: np.ndarray
    next_h: np.ndarray


class PushReference:
    """Collects moments and emits windows by the rules of the push, one list of moments a row."""

    def __init__(self, batch: int) -> None:
        self.pending: list[list[dict[str, Any]]] = [[] for _ in range(batch)]
        self.clock = 0

    def iteration(self, given: Mapping[str, np.ndarray], n: int, gamma: float) -> list[Transition]:
        """Windows that an iteration completes, in the order of their slots."""
        rollout, batch = given["reward"].shape
        out: list[Transition] = []
        for t in range(rollout):
            for b in range(batch):
                self._moment(given, t, b)
                ends = bool(given["terminal"][t, b] or given["truncated"][t, b])
                rows = self.pending[b]
                while rows and (ends or len(rows) >= n):
                    out.append(self._window(rows, given, t, b, gamma))
                    rows.pop(0)
        self.clock += rollout
        return out

    def _moment(self, given: Mapping[str, np.ndarray], t: int, b: int) -> None:
        self.pending[b].append(
            {
                "birth": self.clock + t,
                "index": int(given["cursor"][b]) + t,
                "lots": int(given["position_before"][t, b]),
                "action": int(given["action"][t, b]),
                "reward": float(given["reward"][t, b]),
                "h": given["target_h"][t, b],
            }
        )

    @staticmethod
    def _window(
        rows: list[dict[str, Any]], given: Mapping[str, np.ndarray], t: int, b: int, gamma: float
    ) -> Transition:
        first, n = rows[0], len(rows)
        value = sum(gamma**k * moment["reward"] for k, moment in enumerate(rows))
        return Transition(
            first["birth"], b, n, first["index"], first["lots"], int(given["position_after"][t, b]), first["action"],
            value, gamma**n, int(given["terminal"][t, b]), first["h"], given["target_h"][t + 1, b],
        )  # fmt: skip


def random_iteration(
    rng: np.random.Generator, batch: int, rollout: int, cursor: np.ndarray, ends: float
) -> dict[str, Any]:
    """Inputs of one iteration; ``ends``: share of steps that are terminal, and as many truncated."""
    cells = (rollout, batch)
    return {
        "cursor": cursor,
        "new_episode": np.zeros(batch, np.uint8),
        "target_h": rng.standard_normal((rollout + 1, batch, H)).astype(np.float32),
        "reward": rng.standard_normal(cells).astype(np.float32),
        "position_before": rng.integers(-4, 5, cells),
        "position_after": rng.integers(-4, 5, cells),
        "action": rng.integers(0, 11, cells),
        "terminal": rng.random(cells) < ends,
        "truncated": rng.random(cells) < ends,
    }
