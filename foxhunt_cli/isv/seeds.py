"""Start-up values of the ISV: the table's seeds, the preset's differences, then the user's own.

The user's keys are slot names in lower case. Only tunables and controls may be set: signals and diagnostics are
measured, so a seed for one is a mistake and is refused.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources

import numpy as np

from foxhunt_cli.isv.table import ISV_SIZE, Slot, by_name, slots

PRESETS = ("foxhunt", "seed")  # the default first


class SeedError(ValueError):
    """An ISV seed is unknown, not finite, not settable or out of bounds; the message names key, value and range."""


@cache
def preset_seeds(preset: str) -> dict[str, float]:
    """Differences of ``preset`` ("foxhunt" or "seed") from the table, by lower-case slot name."""
    path = resources.files("foxhunt_cli.config").joinpath("presets.toml")
    return dict(tomllib.loads(path.read_text()).get(preset, {}).get("isv", {}))


def seed_values(overrides: Mapping[str, float], preset: str = "foxhunt") -> np.ndarray:
    """The start-up vector, float32 [ISV_SIZE]. Raises SeedError."""
    values = np.zeros(ISV_SIZE, np.float32)
    for slot in slots():
        values[slot.number] = slot.seed
    for source in (preset_seeds(preset), overrides):
        for key, value in source.items():
            slot = _settable(key)
            values[slot.number] = _bounded(slot, value)
    _check_annealing(values)
    return values


def _check_annealing(values: np.ndarray) -> None:
    """n falls from N_STEP_START to N_STEP, and begins there only where it falls."""
    table = by_name()
    end, start, steps = (values[table[name].number] for name in ("N_STEP", "N_STEP_START", "N_STEP_ANNEAL_STEPS"))
    if steps and start < end:
        raise SeedError(
            f"isv.n_step_start: {start:g} is below isv.n_step = {end:g}, to which n falls over {steps:g} steps; raise "
            f"isv.n_step_start (at most {table['N_STEP_START'].upper:g}) or lower isv.n_step"
        )
    if not steps and start != table["N_STEP_START"].seed:
        raise SeedError(
            f"isv.n_step_start: {start:g} has no effect while isv.n_step_anneal_steps is 0; say over how many steps n "
            f"falls from it to isv.n_step = {end:g}, e.g. isv.n_step_anneal_steps = 1000, or leave isv.n_step_start out"
        )


def _settable(key: str) -> Slot:
    slot = by_name().get(key.upper())
    if slot is None:
        names = [s.name.lower() for s in slots() if s.kind in ("tunable", "control")]
        close = difflib.get_close_matches(key.lower(), names, n=1)
        hint = f"; did you mean '{close[0]}'?" if close else "; 'foxhunt diag slots' lists them"
        raise SeedError(f"isv.{key}: no such slot{hint}")
    if slot.kind not in ("tunable", "control"):
        raise SeedError(f"isv.{key}: slot {slot.number} is a {slot.kind}: it is measured and cannot be seeded")
    return slot


def _bounded(slot: Slot, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise SeedError(f"isv.{slot.name.lower()}: expected a number, got {value!r}") from None
    if not math.isfinite(number) or not slot.lower <= number <= slot.upper:
        raise SeedError(
            f"isv.{slot.name.lower()}: {value} is outside the allowed range [{slot.lower:g}, {slot.upper:g}]"
        )
    return number
