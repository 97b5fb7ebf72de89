"""The spectral cap on the C51 and policy weights: one power iteration an iteration, W x cap / sigma above the cap."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.c51 import ATOMS
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, View

PARAMETERS = ()

# head -> (weights, columns, slot of the norm)
_HEADS = {
    "q": ("w_c51", f"P*N_ACTIONS*{ATOMS}", "SPECTRAL_Q_NORM"),
    "pi": ("w_pi", "P*N_ACTIONS", "SPECTRAL_PI_NORM"),
}

BUFFERS = tuple(
    row
    for head, (weights, columns, _) in _HEADS.items()
    for row in (
        Buffer(f"spectral_{head}_u", "HIDDEN_DIM", "float32", "persistent", "1", f"left singular vector of {weights}"),
        Buffer(f"spectral_{head}_v", columns, "float32", "iteration", "1", f"right singular vector of {weights}"),
        Buffer(f"spectral_{head}_norm", "1", "float32", "iteration", "1", f"largest singular value of {weights}"),
    )
)


def cap(head: str) -> list[Step]:
    """One power iteration on the weights of ``head`` ("q" or "pi") and the cap."""
    weights, columns, slot = _HEADS[head]
    w, norm = View(weights, "HIDDEN_DIM", columns), f"spectral_{head}_norm"
    u, v = View(f"spectral_{head}_u", "1", "HIDDEN_DIM"), View(f"spectral_{head}_v", "1", columns)
    return [
        Matmul(f"spectral {head} v", u, w, v),
        Stage("rl_spectral_unit", {"direction": v.name, "direction_norm": norm, "n": columns}),
        Matmul(f"spectral {head} u", v, w, u, trans_b=True),
        Stage("rl_spectral_unit", {"direction": u.name, "direction_norm": norm, "n": "HIDDEN_DIM"}),
        Stage(
            "rl_spectral_cap",
            {"direction_norm": norm, "w": weights, "slot": str(number(slot)), "n": f"HIDDEN_DIM*{columns}"},
        ),
    ]
