"""Oracles of the internal state vector: what a run starts from, and what may be set."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.isv.seeds import SeedError, preset_seeds, seed_values
from foxhunt_cli.isv.table import ISV_SIZE, number, slots
from foxhunt_cli.oracles.base import Trial, oracle

# The bootstrap values of the controllers, slots 400 to 406, as the project's first description states them.
BOOTSTRAP = (0.99, 0.005, 0.2, 0.01, 2048.0, 0.6, 1.0)


@oracle("isv")
def preset_seed_starts_from_the_table(trial: Trial) -> None:
    """Slots 400 to 406 hold their bootstrap values; every slot its seed or the preset's; unnamed numbers are zero."""
    values = seed_values({}, "seed")
    trial.equal("slots 400 to 406", np.array(BOOTSTRAP, np.float32), values[400:407])
    want = np.zeros(ISV_SIZE, np.float32)
    for slot in slots():
        want[slot.number] = preset_seeds("seed").get(slot.name.lower(), slot.seed)
    trial.equal("all slots", want, values)


@oracle("isv")
def preset_foxhunt_changes_only_what_it_names(trial: Trial) -> None:
    """The two presets differ in the slots that presets.toml names and nowhere else."""
    changed = np.flatnonzero(seed_values({}) != seed_values({}, "seed"))
    named = {number(name.upper()) for preset in ("foxhunt", "seed") for name in preset_seeds(preset)}
    trial.true("changed slots are named", set(changed.tolist()) <= named, sorted(set(changed.tolist()) - named))


@oracle("isv")
def signals_start_at_the_sentinel(trial: Trial) -> None:
    """A signal or diagnostic that nobody measured yet is exactly 0; every seed lies within its bounds."""
    values = seed_values({})
    measured = [slot for slot in slots() if slot.kind in ("signal", "diag")]
    trial.equal("signals and diagnostics", 0.0, np.array([values[slot.number] for slot in measured]))
    # Bounds are decimal, slots float32: one rounding apart.
    outside = [s.name for s in slots() if not s.lower - 1e-6 <= values[s.number] <= s.upper * (1 + 1e-6) + 1e-6]
    trial.true("within bounds", not outside, outside)


@oracle("isv")
def wrong_seeds_are_refused(trial: Trial) -> None:
    """Unknown names, measured slots, values out of bounds or not finite: one error each that names the slot."""
    for wrong in ({"gama": 0.9}, {"kl_pi_ema": 1.0}, {"gamma": 2.0}, {"p_min": float("nan")}, {"lr_pi": "fast"}):
        try:
            seed_values(wrong)
            refused = "accepted"
        except SeedError as error:
            refused = str(error)
        trial.true(f"{wrong}", next(iter(wrong)) in refused, refused)


@oracle("isv")
def the_device_copies_the_vector_bit_for_bit(trial: Trial) -> None:
    """What is seeded on the host is what a kernel reads and what the diagnostic ring gives back."""
    isv = seed_values({})
    out = trial.run(
        "rl_diag_record",
        {"isv": isv, "diag_ring": np.zeros((1, ISV_SIZE), np.float32), "diag_head": np.zeros(1, np.uint32)},
        RING=1,
    )
    trial.equal("ring", isv[None, :], out["diag_ring"])
