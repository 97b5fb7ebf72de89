"""Kill criteria: what must hold of a run for its results to be worth looking at. Each is one line, passed or failed.

Owns the criteria and their thresholds. A criterion whose fields the log lacks is reported as such, never as passed.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from foxhunt_cli.diag.anomalies import ALL_HOLD, COLLAPSED, ENTROPY, ENTROPY_MAX, HOLD
from foxhunt_cli.diag.controllers import State, states
from foxhunt_cli.diag.figures import counted, number, percent
from foxhunt_cli.diag.summary import Summary
from foxhunt_cli.diag.verdict import Verdict

DIVERGED = 100.0  # a loss whose last quarter is this many times its median has diverged


def check(summary: Summary, kernels: Collection[str] | None = None) -> list[Verdict]:
    """All criteria; marks ok, bad (failed), look (passed, but read it) or info (nothing to judge).

    kernels: those of the run's list; without them nobody knows which controllers were on, and a constant one is taken
    for fixed.
    """
    return [
        _log(summary),
        _numbers(summary),
        _losses(summary),
        _trades(summary),
        _policy(summary),
        _controllers(summary, kernels),
        _hindsight(summary),
    ]


def failed(criteria: list[Verdict]) -> bool:
    """Whether any criterion is not met."""
    return any(criterion.mark == "bad" for criterion in criteria)


def _log(summary: Summary) -> Verdict:
    order = [anomaly for anomaly in summary.anomalies if anomaly.kind == "order"]
    if order:
        return Verdict("log", "bad", order[0].what)
    torn = f"; a torn last line of {summary.torn_bytes:,} bytes was left out" if summary.torn_bytes else ""
    return Verdict("log", "ok", f"{counted(summary.lines, 'whole line')} to step {summary.last_step:,}{torn}")


def _numbers(summary: Summary) -> Verdict:
    faults = [anomaly for anomaly in summary.anomalies if anomaly.kind == "nonfinite"]
    if faults:
        return Verdict("finite", "bad", f"from step {faults[0].step:,}: {faults[0].what}")
    return Verdict("finite", "ok", f"all {len(summary.series):,} fields, on every line")


def _losses(summary: Summary) -> Verdict:
    losses = {name: series for name, series in summary.group("loss.").items() if not series.constant}
    if not losses:
        return Verdict("losses", "info", "the log has no loss that moves")
    grown = []
    for name, series in losses.items():
        means = sorted(abs(mean) for mean in series.stretches.means() if math.isfinite(mean))
        median, last = means[len(means) // 2], abs(series.stretches.last_quarter)
        if last > DIVERGED * max(median, 1e-6):
            grown.append(f"{name} {number(last)} in the last quarter, median {number(median)}")
    if grown:
        return Verdict("losses", "bad", f"diverged: {'; '.join(grown)}")
    jumps = [anomaly.what for anomaly in summary.anomalies if anomaly.kind == "jump"]
    if jumps:
        return Verdict("losses", "look", f"{len(losses)} in use, none diverged; {jumps[0]}")
    return Verdict("losses", "ok", f"{len(losses)} in use, none diverged: {', '.join(losses)}")


def _trades(summary: Summary) -> Verdict:
    trades = summary.get("market.trades_closed")
    if trades is None:
        return Verdict("trades", "info", "the log has no market fields")
    last = trades.stretches.last_quarter * summary.per_thousand
    text = f"{number(trades.total)} closed; {number(last)} a row per 1,000 steps in the last quarter"
    return Verdict("trades", "ok" if last > 0 else "bad", text)


def _policy(summary: Summary) -> Verdict:
    entropy, hold = summary.get(ENTROPY), summary.get(HOLD)
    if entropy is None or hold is None:
        return Verdict("policy", "info", "the log has no entropy or action shares")
    last, share = entropy.stretches.last_quarter, hold.stretches.last_quarter
    text = f"entropy {number(last)} of {number(ENTROPY_MAX)} nats, Hold {percent(share)} in the last quarter"
    if share >= ALL_HOLD:
        return Verdict("policy", "bad", f"it only holds: {text}")
    if last < COLLAPSED * ENTROPY_MAX:
        return Verdict("policy", "bad", f"it has stopped exploring: {text}; raise isv.entropy_coef or lower isv.lr_pi")
    return Verdict("policy", "ok", text)


def _controllers(summary: Summary, kernels: Collection[str] | None) -> Verdict:
    found = list(states(summary, kernels))
    if not found:
        return Verdict("controllers", "info", "the log has no controllers")
    counts = ", ".join(
        f"{len(_of(found, status))} {status}" for status in ("moves", "fixed", "waiting") if _of(found, status)
    )
    wrong = [f"{state.slot.name.lower()} {state.text}" for status in ("dead", "stuck") for state in _of(found, status)]
    if wrong:
        return Verdict("controllers", "bad", f"{'; '.join(wrong)} ({counts})")
    pegged = [f"{state.slot.name.lower()} {state.text}" for state in _of(found, "pegged")]
    if pegged:
        return Verdict("controllers", "look", f"{'; '.join(pegged)} ({counts})")
    return Verdict("controllers", "ok", counts)


def _of(found: list[State], status: str) -> list[State]:
    return [state for state in found if state.status == status]


def _hindsight(summary: Summary) -> Verdict:
    backward, forward = (summary.get(f"hindsight.{name}_count_step") for name in ("inject", "forward"))
    if backward is None:
        return Verdict("hindsight", "info", "not part of this run")
    stray = [anomaly for anomaly in summary.anomalies if anomaly.kind == "hindsight"]
    if stray:
        return Verdict("hindsight", "bad", f"from step {stray[0].step:,}: {stray[0].what}")
    total = forward.total if forward else 0.0
    text = f"{number(backward.total)} injected at closes, {number(total)} looking forward"
    share, ceiling = summary.get("hindsight.share"), summary.get("hindsight.max_share")
    if share and ceiling and share.high > ceiling.last * 1.0001:
        return Verdict(
            "hindsight", "bad", f"{text}; share of the replay {percent(share.high)}, allowed {percent(ceiling.last)}"
        )
    if summary.total("market.trades_closed") > 0 and backward.total == 0:
        return Verdict("hindsight", "bad", f"{text}, although trades closed")
    return Verdict("hindsight", "ok", text)
