"""How figures are written wherever people read them: summaries, verdicts, charts."""

from __future__ import annotations

import math


def number(value: float, signed: bool = False) -> str:
    """``value`` with four significant digits and thousands separators; "n/a" for NaN."""
    if not math.isfinite(value):
        return "n/a" if math.isnan(value) else f"{value}"
    sign = "+" if signed else ""
    if value and not 1e-3 <= abs(value) < 1e7:
        return f"{value:{sign}.3g}"
    decimals = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:{sign},.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def counted(count: int, thing: str) -> str:
    """``1 line``, ``1,200 lines``."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def percent(share: float) -> str:
    """A share as a percentage with one decimal; "n/a" for NaN."""
    return f"{share:.1%}" if math.isfinite(share) else "n/a"
