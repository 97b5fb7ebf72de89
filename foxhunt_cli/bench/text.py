"""The benches' results as lines and tables for people. Owns formats of figures; measures nothing, prints nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Columns:
    """A table: names of the columns, rows of texts, columns that hold words (the first always does), and those that a
    narrow terminal does without."""

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: Sequence[str] = ()
    spare: Sequence[str] = ()

    def without(self, dropped: Sequence[str]) -> Columns:
        """The same without these columns."""
        kept = [index for index, name in enumerate(self.names) if name not in dropped]
        rows = [[row[index] for index in kept] for row in self.rows]
        return Columns([self.names[index] for index in kept], rows, self.left)


Block = str | Columns


def figure(value: float, digits: int = 0) -> str:
    """With thousands separators; NaN is n/a."""
    return "n/a" if value != value else f"{value:,.{digits}f}"


def throughput(found: dict[str, Any]) -> list[Block]:
    """A line a figure, then the stages where they were asked for."""
    figures = {label: value for label, value in found.items() if label != "stages"}
    width = max(map(len, figures))
    lines: list[Block] = [
        f"{label:<{width}}  {value:,}" if isinstance(value, int | float) else f"{label:<{width}}  {value}"
        for label, value in figures.items()
    ]
    return [*lines, "", *stages(found["stages"], short=True)] if "stages" in found else lines


def kernels(found: dict[str, Any]) -> list[Block]:
    """A table of stages (or operations) for each batch size."""
    blocks: list[Block] = [
        f"{found['device']}, {found['precision']}, preset {found['preset']}, medians of {found['repeats']}",
        f"limits: copy {found['copy GB/s']:,.1f} GB/s, products {found['product TFLOP/s']:,.3g} TFLOP/s",
    ]
    for table in found["tables"]:
        blocks += ["", f"B = {table['B']:,}, T = {table['T']}, R = {table['R']}, encoder {table['encoder']}"]
        blocks += stages(table)
    return [
        *blocks,
        "",
        "+-: half the distance of the quartiles; steps: kernels + products; MB: products exactly, kernels at most",
    ]


def stages(found: dict[str, Any], *, short: bool = False) -> list[Block]:
    """Stages, longest first, then their sum beside the whole. short: time and share alone."""
    names = ["stage", "us", "+-", "share"]
    names += [] if short else ["steps", "MB", "GFLOP", "GB/s", "TFLOP/s", "limit"]
    rows = []
    for r in found["rows"]:
        label = r["stage"] if not r["shape"] else f"{r['label']}  {r['shape']}"
        spread = (r["us_high"] - r["us_low"]) / 2 / r["us"]
        row = [label, figure(r["us"], 1), f"{spread:.0%}", f"{r['share']:.1%}"]
        if not short:
            row += [f"{r['kernels']}+{r['products']}", figure(r["MB"], 1), figure(r["GFLOP"], 2)]
            row += [figure(r["GB_per_s"], 1), f"{r['TFLOP_per_s']:.3g}", f"{r['of_limit']:.0%}"]
        rows.append(row)
    spread = f"{found['iteration_us_low']:,.1f} to {found['iteration_us_high']:,.1f}"
    whole = f"whole iteration {found['iteration_us']:,.1f} us ({spread})"
    table = Columns(names, rows, spare=("MB", "GFLOP"))
    lines = [f"sum {found['sum_us']:,.1f} us, {whole}, {found['operations']:,} operations"]
    if not short:
        lines.append(f"at the limits the steps would take {found['floor_us']:,.1f} us, launches not counted")
    return [table, *lines]


def replay(found: dict[str, Any]) -> list[Block]:
    """A row for each capacity and buffer."""
    rows = [
        (
            f"{r['capacity']:,}",
            r["buffer"],
            *(figure(r[name]) for name in ("us", "us_low", "us_high")),
            f"{r['ratio']:.2f}",
        )
        for r in found["rows"]
    ]
    return [
        f"{found['device']}; a round: {found['one round']}; medians of {found['repeats']}",
        Columns(("capacity", "buffer", "us a round", "low", "high", "x ours"), rows, ("buffer",)),
        *(f"{name}: {why}" for name, why in found["missing"].items()),
    ]


def hindsight(found: dict[str, Any]) -> list[Block]:
    """Two tables, a row for each policy and kind: when it got there, and what it was worth at the end."""
    teacher = "" if found["surrogate"] else "; the policy learns from the critic alone"
    return [
        f"threshold {found['threshold']:,.1f}: {found['rule']} (flow {found['flow']:,.1f}){teacher}",
        _held(found["rows"]),
        "medians over the seeds that held it; x: that kind's steps over these, seed by seed, least to largest;",
        f"'>': the other never held it; to capture: steps until exit capture {found['capture']:g} is held",
        "",
        _ends(found["rows"], fresh=bool(found["judgements"])),
        "net USD / 1,000 steps; updates, seconds: until the threshold was held; bias: mean E[Q] - target, scaled",
        *([_FRESH] if found["judgements"] else []),
    ]


_FRESH = "held out: on fresh markets, medians over these and the seeds; x rule, clear: against the best rule there"


def _held(rows: Sequence[dict[str, Any]]) -> Columns:
    """Steps to the threshold, with a factor for each kind without hindsight that ran."""
    ran = {r["hindsight"] for r in rows}
    bases = [name for name in rows[0] if name.startswith("x ") and name.removeprefix("x ") in ran]
    texts = [
        (
            f"{r['policy']}, {r['hindsight']}",
            f"{r['held']} of {r['of']}",
            figure(r["steps"]),
            *(_factor(r[name]) for name in bases),
            figure(r["capture steps"]),
        )
        for r in rows
    ]
    return Columns(("policy, hindsight", "held", "steps", *bases, "to capture"), texts, spare=("to capture",))


def _ends(rows: Sequence[dict[str, Any]], *, fresh: bool) -> Columns:
    """What the agents ended at on their own range and, where there are some, on fresh markets."""
    texts = []
    for r in rows:
        held_out = (figure(r["held out"], 1), figure(r["worst"], 1), figure(r["held out x rule"], 2))
        texts.append(
            (
                f"{r['policy']}, {r['hindsight']}",
                figure(r["updates"]),
                figure(r["seconds"], 1),
                figure(r["final"], 1),
                figure(r["exit capture"], 2),
                figure(r["bias"], 3),
                *((*held_out, f"{r['clear']} of {r['judgements']}") if fresh else ()),
            )
        )
    judged = ("held out", "worst", "x rule", "clear") if fresh else ()
    names = ("policy, hindsight", "updates", "seconds", "final", "capture", "bias", *judged)
    return Columns(names, texts, spare=("updates", "seconds", "bias"))


def _factor(factor: dict[str, Any]) -> str:
    """Median and range of the factors of the seeds; '>' where the other kind never got there."""
    if factor["median"] != factor["median"]:
        return "never" if factor["unheld"] else "n/a"
    spread = f" ({factor['low']:.1f}-{factor['high']:.1f})" if factor["low"] < factor["high"] else ""
    return f"{'>' if factor['unheld'] else ''}{factor['median']:.1f}{spread}"


def learn(found: dict[str, Any], *, detail: bool = False) -> list[Block]:
    """A row for each market, preset, encoder and policy; with ``detail`` one for each judgement too."""
    rows = []
    for r in found["rows"]:
        nets = (figure(r[name]) for name in ("net", "worst", "rule net"))
        shares = (figure(r[name], 2) for name in ("x rule", "of drift", "of the bound", "exit capture", "win rate"))
        rows.append(
            (
                f"{r['market']}, {r['preset']}, {r['encoder']}, {r['policy']}",
                *nets,
                f"{r['clear']} of {r['judgements']}",
                *shares,
                figure(r["trades"]),
                f"{figure(r['steps'])} ({r['held']} of {r['of']})",
                figure(r["seconds"], 1),
            )
        )
    names = ("run", "net", "worst", "rule", "clear", "x rule", "drift", "bound", "capture")
    return [
        Columns(
            (*names, "wins", "trades", "holds flow", "s"),
            rows,
            spare=("rule", "capture", "wins", "trades", "holds flow", "s"),
        ),
        "run: market, preset, encoder, policy; net USD / 1,000 steps on held-out markets, medians; worst: the least;",
        "rule: the best of hold, random, moving average, flow; clear: whose 95 % interval lies above the rule's;",
        "drift, bound: share of what knowing the generator's drift, or all of the future, would earn; holds flow:",
        "steps until it holds the flow rule's PnL on its own data; s: seconds of training",
        *(["", _judgements(found["judgements"])] if detail else []),
    ]


def _judgements(judgements: Sequence[dict[str, Any]]) -> Columns:
    rows = [
        (
            f"{j['market']}, {j['preset']}, {j['encoder']}, {j['policy']}",
            str(j["seed"]),
            j["held out"].removeprefix("market "),
            figure(j["net"]),
            f"{figure(j['low'])} to {figure(j['high'])}",
            f"{figure(j['gross low'])} to {figure(j['gross high'])}",
            f"{j['rule']} {figure(j['rule net'])}",
            figure(j["rule high"]),
            *(figure(j[name], 2) for name in ("of drift", "of the bound", "exit capture")),
            figure(j["trades"]),
        )
        for j in judgements
    ]
    names = ("run", "seed", "market", "net", "95 %", "gross 95 %", "best rule", "high")
    return Columns((*names, "drift", "bound", "capture", "trades"), rows, ("market", "best rule"), ("gross 95 %",))
