"""What hindsight buys: the same run with each kind of it, by the steps until held-out thresholds are held.

Every run has the same reward, market, sizes and seeds. A run holds a threshold at the first of three evaluations in a
row at or above it; steps, updates and seconds are those at that evaluation. Thresholds: a net PnL, and an exit capture.
What the agents are worth at the end is judged on fresh markets as well, where the grower has some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from foxhunt_cli.bench.curves import IN_A_ROW, Curve, Grower, holds, middle
from foxhunt_cli.bench.learn import judgement
from foxhunt_cli.bench.markets import OWN
from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.diag.plots import NET
from foxhunt_cli.market.evaluate import AGENT, CRITIC

# Label -> what sets it apart.
KINDS: dict[str, tuple[str, ...]] = {
    "none3": ("hindsight=none", "isv.n_step=3"),
    "none8": ("hindsight=none", "isv.n_step=8"),
    "none16": ("hindsight=none", "isv.n_step=16"),
    "none-annealed": ("hindsight=none", "isv.n_step=4", "isv.n_step_start=32"),
    "close": ("hindsight=close", "isv.n_step=8"),
    "peak": ("hindsight=peak", "isv.n_step=8"),
    "path": ("hindsight=path", "isv.n_step=8"),
    "path-backward": ("hindsight=path", "isv.n_step=8", "hindsight_directions=backward"),
    "path-forward": ("hindsight=path", "isv.n_step=8", "hindsight_directions=forward"),
    "path-off": ("hindsight=path", "isv.n_step=8", "hindsight_directions=off"),
    "path-annealed": ("hindsight=path", "isv.n_step=4", "isv.n_step_start=32"),
}
ANNEALED, ANNEALED_UPDATES = "-annealed", 1_000
"""What a kind whose n falls ends in; critic updates over which it does, in steps of a row at the run's own rate."""
BASES = ("none3", "none8", "none16", "none-annealed")
"""What the others are compared with: their steps over one's own, seed by seed."""
WITHOUT_SURROGATE = (
    "isv.loss_lambda_pi=0",
    "isv.q_distill_lambda=1",
    "isv.p_min=0.005",
    "isv.kl_ref_beta=0",
    "isv.lr_final_share=1",
    "isv.lr_warmup_steps=20",
)
"""The policy learns from the critic alone: what the label teaches decides everything. It explores more, since a critic
of executed actions knows only those that are tried; rates stay, so that steps to a threshold do not depend on the run's
length."""
FACTOR, CAPTURE = 1.3, 0.4
"""Default thresholds: net PnL in multiples of the flow rule's, exit capture."""
_NAN = float("nan")


def run(
    configure: Callable[[Sequence[str]], RunConfig], grower: Grower, *,
    kinds: Sequence[str], seeds: int, factor: float = FACTOR, threshold: float | None = None,
    capture: float = CAPTURE, surrogate: bool = True,
) -> dict[str, Any]:  # fmt: skip
    """A row for each kind and each of the learned policies.

    configure: the run's configuration with these settings on top. threshold: net USD per 1,000 steps; by default
    ``factor`` times the flow rule's. surrogate False: see WITHOUT_SURROGATE. Raises ConfigError for an unknown kind,
    and where the flow rule earns nothing that could be multiplied.
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise ConfigError(f"--kinds: expected some of {', '.join(KINDS)}, got '{unknown[0]}'")
    common = () if surrogate else WITHOUT_SURROGATE
    curves: list[Curve] = []
    for kind in kinds:
        own = [*common, *KINDS[kind], *_annealing(kind, configure(common))]
        for seed in range(seeds):
            curves.append(grower.grow(configure([*own, f"seed={seed}"]), {"hindsight": kind, "seed": seed}))
            if threshold is None and not curves[0].flow > 0.0:
                raise ConfigError(
                    f"--factor: the flow rule earns {curves[0].flow:,.1f} USD per 1,000 steps on this market: no "
                    "multiple of that is a threshold; give one in USD with --threshold"
                )
    rule = "net USD / 1,000 steps" if threshold is not None else f"{factor:g} x the flow rule's net USD / 1,000 steps"
    threshold = factor * curves[0].flow if threshold is None else threshold
    rows = [
        _row(kind, policy, [c for c in curves if c.labels["hindsight"] == kind], threshold, capture)
        for policy in (AGENT, CRITIC)
        for kind in kinds
    ]
    for row in rows:
        for kind in BASES:
            base = next((r for r in rows if (r["policy"], r["hindsight"]) == (row["policy"], kind)), None)
            row[f"x {kind}"] = _factor(base, row)
    judgements = [made for curve in curves for policy in (AGENT, CRITIC) for made in _judgements(curve, policy)]
    return {
        "threshold": threshold,
        "capture": capture,
        "rule": f"{rule}, held in {IN_A_ROW} evaluations in a row",
        "flow": curves[0].flow,
        "surrogate": surrogate,
        "seeds": seeds,
        "rows": rows,
        "judgements": judgements,
    }


def _annealing(kind: str, config: RunConfig) -> tuple[str, ...]:
    """What makes n of this kind fall over ANNEALED_UPDATES; nothing where it stays."""
    steps = -(-ANNEALED_UPDATES * config.rollout // max(config.updates, 1))
    return (f"isv.n_step_anneal_steps={steps}",) if kind.endswith(ANNEALED) else ()


def _judgements(curve: Curve, policy: str) -> list[dict[str, Any]]:
    """One for each fresh market; see ``learn.judgement``."""
    fresh = (name for name, figures in curve.finals.items() if name != OWN and policy in figures)
    return [judgement(curve, name, policy) | {"policy": policy} for name in fresh]


def _row(kind: str, policy: str, curves: Sequence[Curve], threshold: float, capture: float) -> dict[str, Any]:
    """Medians over the seeds that held the threshold; what they ended at over all. bias: E[Q] - target at the end.

    held out, worst: median and least net USD per 1,000 steps over seeds and fresh markets, held out x rule: median of
    that over the best rule's there; clear: of so many judgements those whose 95 % interval lies above it.
    """
    judged = [made for curve in curves for made in _judgements(curve, policy)]
    at = [(curve, holds(curve.of(policy), threshold)) for curve in curves]
    held = [(curve, index) for curve, index in at if index is not None]
    caught = [(curve, holds(curve.of(policy, "exit capture"), capture)) for curve in curves]
    return {
        "policy": policy,
        "hindsight": kind,
        "held": len(held),
        "of": len(curves),
        "steps": middle([curve.steps[i] for curve, i in held]),
        "steps_by_seed": [None if i is None else curve.steps[i] for curve, i in at],
        "updates": middle([curve.updates[i] for curve, i in held]),
        "seconds": middle([curve.seconds[i] for curve, i in held]),
        "capture steps": middle([curve.steps[i] for curve, i in caught if i is not None]),
        "capture_steps_by_seed": [None if i is None else curve.steps[i] for curve, i in caught],
        "final": middle([curve.last(policy, NET) for curve in curves]),
        "final_by_seed": [curve.last(policy, NET) for curve in curves],
        "exit capture": middle([curve.last(policy, "exit capture") for curve in curves]),
        "bias": middle([curve.bias[-1] for curve in curves if curve.bias]),
        "held out": middle([made["net"] for made in judged]),
        "worst": min((made["net"] for made in judged), default=_NAN),
        "held out x rule": middle([made["x rule"] for made in judged]),
        "held out capture": middle([made["exit capture"] for made in judged]),
        "clear": sum(made["clear"] for made in judged),
        "judgements": len(judged),
    }


def _factor(base: dict[str, Any] | None, row: dict[str, Any]) -> dict[str, Any]:
    """Steps of the base over this kind's: median, least and largest of the seeds that held the threshold in both.

    unheld: seeds that this kind brought there and the base did not: their factor has no upper end.
    """
    pairs = [] if base is None else list(zip(base["steps_by_seed"], row["steps_by_seed"], strict=True))
    factors = [b / own for b, own in pairs if b is not None and own is not None]
    return {
        "median": middle(factors),
        "low": min(factors, default=_NAN),
        "high": max(factors, default=_NAN),
        "unheld": sum(b is None and own is not None for b, own in pairs),
    }
