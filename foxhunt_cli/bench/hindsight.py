"""What hindsight buys: the same run with each kind of it, by the steps until a held-out PnL is held.

Every run has the same reward, market, sizes and seeds. A run holds the threshold at the first of three evaluations in a
row at or above it; steps, updates and seconds are those at that evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from foxhunt_cli.bench.curves import IN_A_ROW, Curve, Grower, holds, middle
from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.market.evaluate import AGENT, CRITIC

# Label -> what sets it apart.
KINDS: dict[str, tuple[str, ...]] = {
    "none3": ("hindsight=none", "isv.n_step=3"),
    "none8": ("hindsight=none", "isv.n_step=8"),
    "close": ("hindsight=close", "isv.n_step=8"),
    "peak": ("hindsight=peak", "isv.n_step=8"),
    "path": ("hindsight=path", "isv.n_step=8"),
    "path-backward": ("hindsight=path", "isv.n_step=8", "hindsight_directions=backward"),
    "path-forward": ("hindsight=path", "isv.n_step=8", "hindsight_directions=forward"),
    "path-off": ("hindsight=path", "isv.n_step=8", "hindsight_directions=off"),
}
BASES = ("none3", "none8")
"""What the others are compared with: their steps over one's own."""
_NAN = float("nan")
FACTOR = 1.3
"""Default threshold, in multiples of the flow rule's held-out PnL."""


def run(
    configure: Callable[[Sequence[str]], RunConfig], grower: Grower, *,
    kinds: Sequence[str], seeds: int, factor: float = FACTOR, threshold: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A row for each kind and each of the learned policies.

    configure: the run's configuration with these settings on top. threshold: net USD per 1,000 steps; by default
    ``factor`` times the flow rule's. Raises ConfigError for an unknown kind.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ConfigError(f"--kinds: expected some of {', '.join(KINDS)}, got '{unknown[0]}'")
    curves = [
        grower.grow(configure([*KINDS[kind], f"seed={seed}"]), {"hindsight": kind, "seed": seed})
        for kind in kinds
        for seed in range(seeds)
    ]
    rule = "net USD / 1,000 steps" if threshold is not None else f"{factor:g} x the flow rule's net USD / 1,000 steps"
    threshold = factor * curves[0].flow if threshold is None else threshold
    rows = [
        _row(kind, policy, [c for c in curves if c.labels["hindsight"] == kind], threshold)
        for policy in (AGENT, CRITIC)
        for kind in kinds
    ]
    for row in rows:
        for kind in BASES:
            base = next((r["steps"] for r in rows if (r["policy"], r["hindsight"]) == (row["policy"], kind)), _NAN)
            row[f"x {kind}"] = base / row["steps"]
    return {
        "threshold": threshold,
        "rule": f"{rule}, held in {IN_A_ROW} evaluations in a row",
        "flow": curves[0].flow,
        "seeds": seeds,
        "rows": rows,
    }


def _row(kind: str, policy: str, curves: Sequence[Curve], threshold: float) -> dict[str, Any]:
    """Medians over the seeds that held it; the final PnL over all."""
    at = [(curve, holds(curve.net(policy), threshold)) for curve in curves]
    held = [(curve, index) for curve, index in at if index is not None]
    return {
        "policy": policy,
        "hindsight": kind,
        "held": len(held),
        "of": len(curves),
        "steps": middle([curve.steps[i] for curve, i in held]),
        "steps_by_seed": [None if i is None else curve.steps[i] for curve, i in at],
        "updates": middle([curve.updates[i] for curve, i in held]),
        "seconds": middle([curve.seconds[i] for curve, i in held]),
        "final": middle([curve.last(policy) for curve in curves]),
        "exit capture": middle([curve.last(policy, "exit capture") for curve in curves]),
    }
