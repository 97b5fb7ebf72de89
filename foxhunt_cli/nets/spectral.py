"""The spectral cap on the C51 and policy weights: one power iteration an iteration, W x cap / sigma above the cap."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import number
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.nets import popart
from foxhunt_cli.nets.c51 import ATOMS
from foxhunt_cli.pipeline.stage import Fused, Stage, Step

# head -> (weights, columns, slot of the norm)
_HEADS = {
    "q": ("w_c51", f"P*N_ACTIONS*{ATOMS}", "SPECTRAL_Q_NORM"),
    "pi": ("w_pi", "P*N_ACTIONS", "SPECTRAL_PI_NORM"),
}

BUFFERS = (
    Buffer("spectral_left", "2, HIDDEN_DIM", "float32", "iteration", "1", "W v of both heads, before it is a unit"),
) + tuple(
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
    u, v, norm = (f"spectral_{head}_{name}" for name in ("u", "v", "norm"))
    sides = {"w": weights, "left": u, "right": v, "columns": columns}
    return [
        Stage("rl_spectral_right", sides),
        Stage("rl_spectral_unit", {"direction": v, "direction_norm": norm, "n": columns}),
        Stage("rl_spectral_left", sides),
        Stage("rl_spectral_unit", {"direction": u, "direction_norm": norm, "n": "HIDDEN_DIM"}),
        Stage(
            "rl_spectral_cap",
            {"direction_norm": norm, "w": weights, "slot": str(number(slot)), "n": f"HIDDEN_DIM*{columns}"},
        ),
    ]


def care() -> list[Step | Fused]:
    """The cap on both heads, then PopArt: what is done once an iteration behind the last update."""
    heads = {}
    for head, (weights, columns, slot) in _HEADS.items():
        heads |= {f"{name}_{head}": f"spectral_{head}_{name}" for name in ("u", "v", "norm")}
        heads |= {f"w_{head}": weights, f"n_{head}": columns, f"slot_{head}": str(number(slot))}
    left = {"left": "spectral_left"}
    launches = (
        Stage("rl_care_right", _of("rl_care_right", heads)),
        Stage("rl_care_left", {**_of("rl_care_left", heads), **left, **popart.update()[0].remap}),
        Stage("rl_care_cap", {**_of("rl_care_cap", heads), **left}),
    )
    return [Fused(launches, (*cap("q"), *cap("pi"), *popart.update()), exact=True)]


def _of(name: str, heads: dict[str, str]) -> dict[str, str]:
    """What of ``heads`` the kernel has parameters for."""
    return {p.name: heads[p.name] for p in kernel(name).params if p.name in heads}
