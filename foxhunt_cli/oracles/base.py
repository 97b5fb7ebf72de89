"""The frame of the oracles: cases, checks, and a way to run one kernel on named arrays.

An oracle is a function ``case(trial)`` registered with ``@oracle("suite")``; its name is its identity. pytest and
``foxhunt oracle`` run the same functions. A trial holds the device; ``trial.run`` launches one kernel on host arrays
and returns what it wrote, so a case reads: inputs, run, checks.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foxhunt_cli.device.base import CacheError, Device
from foxhunt_cli.kernels.bind import bind
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.oracles.witness import Witness


@dataclass(frozen=True)
class Check:
    """One comparison: what was expected, what came, and how far apart they may be."""

    label: str
    expected: str
    got: str
    tolerance: float
    ok: bool


@dataclass(frozen=True)
class Case:
    """A registered oracle."""

    suite: str
    name: str
    function: Callable[[Trial], None]


@dataclass
class CaseResult:
    """Outcome of one case on one device. ``error`` is a traceback if the case itself broke.

    ``inputs``: of a failed case, what the last kernel before the first failure was given.
    """

    suite: str
    name: str
    checks: list[Check]
    error: str
    seconds: float
    inputs: str = ""
    skipped: str = ""  # why the case does not apply to this device

    @property
    def passed(self) -> bool:
        """True if the case ran, checked something, and every check held; a skipped case has not failed either."""
        return bool(self.skipped) or not self.error and bool(self.checks) and all(c.ok for c in self.checks)


class Skipped(Exception):
    """The case does not apply to this device; the message says why."""


_CASES: list[Case] = []


def oracle(suite: str) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Register a case under its function name."""

    def register(function: Callable[[Trial], None]) -> Callable[[Trial], None]:
        _CASES.append(Case(suite, function.__name__, function))
        return function

    return register


def suites() -> dict[str, list[Case]]:
    """All cases by suite, in order of suite name and definition."""
    package = importlib.import_module("foxhunt_cli.oracles")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"foxhunt_cli.oracles.{module.name}")
    found: dict[str, list[Case]] = {}
    for case in _CASES:
        found.setdefault(case.suite, []).append(case)
    return dict(sorted(found.items()))


def run_case(case: Case, device: Device) -> CaseResult:
    """Run one case: a broken one is a failed result with its traceback and its last inputs. Raises CacheError."""
    start = time.perf_counter()
    try:
        trial, error = _tried(case, device)
    except Skipped as why:
        return CaseResult(case.suite, case.name, [], "", time.perf_counter() - start, skipped=str(why))
    result = CaseResult(case.suite, case.name, trial.checks, error, time.perf_counter() - start)
    if not result.passed:
        witness = Witness(device)
        again, _ = _tried(case, witness)
        result.inputs = again.inputs or witness.describe()
    return result


def _tried(case: Case, device: Any) -> tuple[Trial, str]:
    """The trial and the traceback, empty where the case ran through."""
    trial = Trial(device)
    try:
        case.function(trial)
    except (Skipped, CacheError):  # no case can run without a cache: nothing is known of the kernel
        raise
    except Exception:
        return trial, traceback.format_exc(limit=-4)
    return trial, ""


@dataclass
class Trial:
    """What a case works with: a device, a kernel runner and checks.

    ``inputs``: with a witness as device, what the last kernel before the first failed check was given.
    """

    device: Device
    checks: list[Check] = field(default_factory=list)
    inputs: str = ""

    def run(
        self, name: str, arrays: Mapping[str, np.ndarray], remap: Mapping[str, str] | None = None, **dims: int | float
    ) -> dict[str, np.ndarray]:
        """Launch kernel ``name`` once on host arrays (by parameter name) and scalars; what it writes comes back.

        The inputs are not changed. Arrays the kernel only writes must be given too: they set the shape.
        """
        contract = kernel(name)
        self.device.compile([contract])
        held = {key: self.device.upload(np.ascontiguousarray(value)) for key, value in arrays.items()}
        launch = bind(contract, held, dims, remap, double=self.device.double)
        self.device.plan([launch], use_graph=False).run_eager()
        self.device.synchronize()
        names = remap or {}
        return {p: self.device.download(held[names.get(p, p)]).copy() for p in contract.writes}

    @property
    def in_tf32(self) -> bool:
        """Whether the device rounds the operands of matrix products to 10 bits."""
        return self.device.precision == "tf32"

    def bound(self, float32: float, tf32: float) -> float:
        """The tolerance of what came through matrix products, by the device's precision."""
        return tf32 if self.in_tf32 else float32

    def needs_tensor_cores(self) -> None:
        """Skip the case unless the device runs ``cuda_only`` kernels: a GPU of compute capability 9.0 or newer."""
        if not self.device.tensor_cores:
            raise Skipped("needs an NVIDIA GPU of compute capability 9.0 or newer")

    def close(self, label: str, expected: Any, got: Any, tolerance: float) -> None:
        """max |expected - got| <= tolerance, element by element; NaN never passes."""
        want, have = np.asarray(expected, np.float64), np.asarray(got, np.float64)
        if want.shape != have.shape and want.size != 1:
            self._add(label, f"shape {want.shape}", f"shape {have.shape}", tolerance, False)
            return
        distance = np.abs(want - have)
        worst = int(np.argmax(np.where(np.isnan(distance), np.inf, distance))) if distance.size else 0
        ok = bool(distance.size) and bool(np.all(distance <= tolerance))
        self._add(label, *self._show(np.broadcast_to(want, have.shape), have, worst), tolerance, ok)

    def equal(self, label: str, expected: Any, got: Any) -> None:
        """Exactly equal, element by element."""
        want, have = np.asarray(expected), np.asarray(got)
        same = want.shape == have.shape or want.size == 1
        ok = same and have.size > 0 and bool(np.all(want == have))
        worst = int(np.argmax(np.broadcast_to(want, have.shape) != have)) if same and have.size else 0
        text = (
            self._show(np.broadcast_to(want, have.shape), have, worst) if same else (str(want.shape), str(have.shape))
        )
        self._add(label, *text, 0.0, ok)

    def true(self, label: str, condition: Any, got: Any = "") -> None:
        """A condition that must hold; ``got`` is shown."""
        shown = bool(condition) if isinstance(got, str) and not got else got
        self._add(label, "true", str(shown), 0.0, bool(condition))

    def _add(self, label: str, expected: str, got: str, tolerance: float, ok: bool) -> None:
        self.checks.append(Check(label, expected, got, tolerance, ok))
        if not ok and not self.inputs and isinstance(self.device, Witness):
            self.inputs = self.device.describe()

    @staticmethod
    def _show(want: np.ndarray, have: np.ndarray, worst: int) -> tuple[str, str]:
        """Small arrays whole, large ones at the worst element."""
        if have.size <= 8:
            return (
                np.array2string(want, precision=6, separator=", "),
                np.array2string(have, precision=6, separator=", "),
            )
        where = np.unravel_index(worst, have.shape)
        place = ",".join(str(i) for i in where)
        return (f"[{place}] {want[where]:.7g}", f"[{place}] {have[where]:.7g} ({have.size} values)")
