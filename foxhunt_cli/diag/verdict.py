"""A run judged in one line a question: did it learn, trade, stay finite, keep exploring, and how fast was it?

Owns the thresholds and the words. A verdict quotes the numbers it rests on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from foxhunt_cli.diag.anomalies import ALL_HOLD, COLLAPSED, ENTROPY, ENTROPY_MAX, HOLD
from foxhunt_cli.diag.evaluations import last_evaluation
from foxhunt_cli.diag.figures import counted, number
from foxhunt_cli.diag.series import Series
from foxhunt_cli.diag.summary import Summary
from foxhunt_cli.isv.table import slots

STRETCHES_MIN = 8  # stretches of the log below which a trend is not judged
CLEAR = 2.0  # Welch's t above which a change between quarters is called one
NET, LOW, HIGH = "net USD / 1,000 steps", "95 % interval, low", "95 % interval, high"  # of an evaluation
RULES = ("moving average", "flow")
MOST = 0.5  # share of lines at a bound above which a controller was there most of the run


@dataclass(frozen=True)
class Verdict:
    """One line: the question's topic, a mark (ok, look, bad or info) and the answer with its numbers."""

    topic: str
    mark: str
    text: str


def verdicts(summary: Summary) -> list[Verdict]:
    """All verdicts that the log has fields for, most important first."""
    questions = (_held_out, _learning, _trading, _pnl, _finite, _exploring, _controllers, _speed)
    return [verdict for verdict in (question(summary) for question in questions) if verdict]


def rate_unit(summary: Summary) -> str:
    """Unit of rates: per row where the manifest says how many rows there are."""
    return "per row per 1,000 steps" if summary.batch else "per 1,000 steps, all rows"


def _held_out(summary: Summary) -> Verdict | None:
    """The last evaluation: what the greedy policy earned on data that training never saw."""
    policies = last_evaluation(summary.path.parent)
    if policies is None:
        return None
    if "agent" not in policies:
        return Verdict("held out", "look", "the evaluation's file is damaged; judge the run anew with foxhunt eval")
    agent = policies["agent"]
    net, low, high = (agent.get(name) for name in (NET, LOW, HIGH))
    if net is None or low is None or high is None:
        return None
    text = f"{number(net, True)} USD per row per 1,000 steps, 95 % interval {number(low)} to {number(high)}"
    text += f", {number(agent.get('trades') or 0.0)} trades"
    rules = {name: figures[NET] for name, figures in policies.items() if name in RULES and figures.get(NET) is not None}
    if rules:
        best = max(rules, key=lambda name: rules[name])
        text += f"; best rule {best} {number(rules[best], True)}"
    if low > 0:
        return Verdict("held out", "ok", f"the policy earns: {text}")
    return Verdict("held out", "look", f"no profit beyond noise: {text}")


def _learning(summary: Summary) -> Verdict | None:
    pnl = summary.get("market.pnl_step_usd")
    if pnl is None:
        return None
    (first, first_error), (last, last_error) = pnl.stretches.part(0, of=4), pnl.stretches.part(3, of=4)
    if len(pnl.stretches.sums) < STRETCHES_MIN:
        return Verdict("learning", "info", f"too short to judge: {counted(summary.lines, 'line')}")
    error = math.hypot(first_error, last_error)
    t = (last - first) / error if error > 0 else 0.0
    factor = summary.per_thousand
    change = f"PnL {number(first * factor, True)} -> {number(last * factor, True)} USD {rate_unit(summary)}"
    basis = f"first to last quarter, t = {t:.1f}"
    if t > CLEAR and last > 0:
        return Verdict("learning", "ok", f"yes: {change} ({basis})")
    if t > CLEAR:
        return Verdict("learning", "look", f"it loses less while it explores: {change} ({basis})")
    if t < -CLEAR:
        return Verdict("learning", "bad", f"it got worse: {change} ({basis})")
    return Verdict("learning", "look", f"no clear change: {change} ({basis})")


def _trading(summary: Summary) -> Verdict | None:
    trades = summary.get("market.trades_closed")
    if trades is None:
        return None
    hold = summary.get(HOLD)
    idle = f"Hold {hold.stretches.last_quarter:.1%} of actions" if hold else ""
    last = trades.stretches.last_quarter
    if not last > 0:
        return Verdict("trading", "bad", f"no trade in the last quarter; {number(trades.total)} in all; {idle}")
    rate = f"{number(last * summary.per_thousand)} trades {rate_unit(summary)} in the last quarter"
    mark = "look" if hold and hold.stretches.last_quarter >= ALL_HOLD else "ok"
    wins = f"win rate {win_rate(summary):.1%} of {number(trades.total)}"
    return Verdict("trading", mark, f"{rate}; {wins}; {idle}")


def win_rate(summary: Summary) -> float:
    """Winning trades over closed trades of the whole log; 0 without a trade."""
    closed = summary.total("market.trades_closed")
    return summary.total("market.wins") / closed if closed else 0.0


def _pnl(summary: Summary) -> Verdict | None:
    pnl = summary.get("market.pnl_step_usd")
    if pnl is None:
        return None
    last = pnl.stretches.last_quarter * summary.per_thousand
    fees = summary.total("market.fees_step_usd")
    per_line = "" if summary.lines == summary.iterations else " on logged iterations"
    text = f"{number(last, True)} USD {rate_unit(summary)} in the last quarter, net; "
    text += f"{number(pnl.total, True)} USD in all, {number(fees)} USD of fees{per_line}"
    return Verdict("PnL", "ok" if last > 0 else "look", text)


def _finite(summary: Summary) -> Verdict | None:
    losses = summary.group("loss.")
    faults = [anomaly for anomaly in summary.anomalies if anomaly.kind == "nonfinite"]
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        return Verdict("numbers", "bad", f"from step {faults[0].step:,}: {faults[0].what}{more}")
    if not losses:
        return None
    moved = {name: series for name, series in losses.items() if not series.constant}
    return Verdict("numbers", "ok", f"finite throughout; {len(moved)} of {len(losses)} losses in use")


def _exploring(summary: Summary) -> Verdict | None:
    entropy = summary.get(ENTROPY)
    if entropy is None:
        return None
    last = entropy.stretches.last_quarter
    text = f"policy entropy {number(entropy.first)} -> {number(last)} nats of at most {number(ENTROPY_MAX)}"
    if last < COLLAPSED * ENTROPY_MAX:
        return Verdict("exploring", "bad", f"collapsed: {text}; raise isv.entropy_coef or lower isv.lr_pi")
    return Verdict("exploring", "ok", text)


def _controllers(summary: Summary) -> Verdict | None:
    controllers = summary.group("controllers.")
    if not controllers:
        return None
    moved = [name for name, series in controllers.items() if not series.constant]
    there = [name for name, series in controllers.items() if share_at_bound(f"controllers.{name}", series) > MOST]
    text = f"{len(moved)} of {len(controllers)} moved"
    if there:
        return Verdict("controllers", "look", f"{text}; at a bound most of the run: {', '.join(there)}")
    return Verdict("controllers", "ok" if moved else "info", text)


def share_at_bound(name: str, series: Series) -> float:
    """Share of lines on which a controller that moves sat at a bound of its slot."""
    slot = next((slot for slot in slots() if slot.field == name), None)
    if slot is None or series.constant or not series.count:
        return 0.0
    low = series.low_run if math.isclose(series.low, slot.lower, rel_tol=1e-6) else 0
    high = series.high_run if math.isclose(series.high, slot.upper, rel_tol=1e-6) else 0
    return max(low, high) / series.count


def _speed(summary: Summary) -> Verdict | None:
    speed = summary.get("perf.env_steps_per_s")
    if speed is None:
        return None
    slowest = f"lowest {number(speed.low)}, highest {number(speed.high)}"
    return Verdict("speed", "info", f"{number(speed.mean)} env steps/s on average ({slowest}), all rows")
