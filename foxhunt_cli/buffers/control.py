"""Buffers of the controllers and the entry gates: what a controller remembers that is not a slot."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import ISV_SIZE

# At least the largest AGE_ constant of cuda_src/control/controller.cuh, plus one (a test compares).
N_CONTROLLER_AGES = 32

_STATE = (
    Buffer("isv_seed", f"{ISV_SIZE}", "float32", "persistent", "mixed", "the ISV as it was when the run started"),
    Buffer("controller_age", f"{N_CONTROLLER_AGES}", "uint32", "persistent", "updates", "live updates by slot"),
    Buffer("loss_abs_ema", "3", "float32", "persistent", "1", "EMA of |loss| of Q, PI, V"),
    Buffer("lr_halvings", "3", "uint32", "persistent", "1", "halvings of the learning rate of Q, PI, V on a plateau"),
)


def spare(name: str) -> str:
    """What a kernel of all controllers takes for the state ``name`` where no running controller has it."""
    return f"spare_{name}"


STATE = tuple(row.name for row in _STATE)

ROWS = (
    *_STATE,
    *(Buffer(spare(row.name), "1", row.dtype, "data", "1", f"stands for {row.name}; not touched") for row in _STATE),
    Buffer("atom_span_window", "2", "float32", "persistent", "mixed", "sum of target clip rates, iterations summed"),
    Buffer("atom_span_before", "2", "float32", "iteration", "scaled", "V_MIN, V_MAX before this iteration's growth"),
    Buffer("rng_gate", "B", "uint32", "persistent", "state", "xorshift32 state of the gate bypass draw"),
    *(Buffer(f"pass_{n}", "1", "int32", "iteration", "0/1", f"there is an on-policy pass {n}") for n in (2, 3, 4)),
    Buffer("gate_open", "B", "uint8", "iteration", "0/1", "the row ignores the entry gates in this step"),
)
