"""Renders ``docs/slots.md`` and ``docs/diagnostics.md`` from the slot table, the derived fields and the criteria.

``python -m foxhunt_cli.diag.reference`` rewrites them and the schema; a test renders them again and compares.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from foxhunt_cli.diag import schema
from foxhunt_cli.diag.anomalies import ACTIONS
from foxhunt_cli.diag.fields import DERIVED
from foxhunt_cli.isv.seeds import PRESETS, preset_seeds
from foxhunt_cli.isv.table import Slot, slots

_KINDS = {
    "tunable": "set by a person, constant in a run",
    "control": "written by its controller; the seed is where it starts",
    "signal": "measured; 0 until there is something to measure",
    "diag": "written for people alone",
}
_CRITERIA = {
    "log": "the steps only go forward: one run a file",
    "finite": "no field was ever null, no gradient or loss was counted as not finite",
    "losses": "no loss ends more than 100 times above its median",
    "trades": "trades closed in the last quarter of the run",
    "policy": "entropy above 5 % of ln 11, Hold below 99.9 %, in the last quarter",
    "controllers": "none dead (constant, at no bound, although its input is live), none at a bound for more than 90 % "
    "of the second half unless its input keeps it there",
    "hindsight": "backward transitions only where trades closed, some if any closed, never above the allowed share",
}


def render_slots() -> str:
    """Text of ``docs/slots.md``."""
    lines = [
        "# Slots of the internal state vector",
        "",
        "<!-- written by foxhunt_cli/diag/reference.py from foxhunt_cli/isv/slots.toml: do not edit -->",
        "",
        "Every number that a kernel is tuned by, and every number it reports, is a slot of one float32 vector on the",
        "device. Slot numbers are stable: they appear in saved runs. A tunable or control is seeded with",
        "`--set isv.NAME=VALUE` or in a seeds file, in lower case; values outside the range are refused.",
        "`foxhunt diag slots` prints this table.",
        "",
        *(f"- `{kind}`: {meaning}" for kind, meaning in _KINDS.items()),
        "",
        "| slot | name | kind | seed | range | unit | meaning | written by | field |",
        "|---|---|---|---|---|---|---|---|---|",
        *map(_slot_row, slots()),
    ]
    return "\n".join(lines) + "\n"


def _slot_row(slot: Slot) -> str:
    value, other = (preset_seeds(preset).get(slot.name.lower(), slot.seed) for preset in PRESETS)
    seed = f"{value:g}" + (f" (preset seed {other:g})" if value != other else "")
    settable = slot.kind in ("tunable", "control")
    cells = (str(slot.number), f"`{slot.name}`", slot.kind, seed if settable else "",
             f"{slot.lower:g} .. {slot.upper:g}" if settable else "", slot.unit, slot.meaning,
             f"`{slot.owner}`" if slot.owner else "", f"`{slot.field}`")  # fmt: skip
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def render_diagnostics() -> str:
    """Text of ``docs/diagnostics.md``."""
    return "\n".join([*_head(), *_derived(), *_actions(), *_topics(), *_criteria()]) + "\n"


def _head() -> Iterator[str]:
    yield from (
        "# Fields of run.jsonl",
        "",
        "<!-- written by foxhunt_cli/diag/reference.py: do not edit -->",
        "",
        "One JSON object a line, one line an iteration (T environment steps of all rows and the learning from them),",
        'or every `log_every`-th. Fields nest by topic: `loss.v` is `{"loss": {"v": ...}}`; those that end in a number',
        "are elements of a list. A signal or diagnostic stands in the log only where the kernel that writes it is",
        "part of the run. A number that is not finite is null, and `nonfinite` names its field. Only the last line of",
        "a file may be torn, by a kill; every reader leaves it out and says so.",
        "",
        "The JSON schema of a line is `foxhunt_cli/diag/run.schema.json`; it travels in the package, and",
        "`python -m foxhunt_cli.diag.schema` prints it. `foxhunt diag export` writes the log as CSV, Parquet or",
        "TensorBoard events; `foxhunt_cli.api` reads it into arrays.",
        "",
    )


def _derived() -> Iterator[str]:
    yield from ("## Of the line itself", "", "| field | unit | meaning |", "|---|---|---|")
    yield from (f"| `{name}` | {unit} | {meaning} |" for name, (_, unit, meaning) in DERIVED.items())
    yield ""


def _actions() -> Iterator[str]:
    yield from (
        "## Executed actions",
        "",
        "`actions.share` is a list of eleven shares, after gates and stops, in this order:",
        "",
    )
    yield from (f"{index}. {name}" for index, name in enumerate(ACTIONS))
    yield ""


def _topics() -> Iterator[str]:
    shares = "actions.share."
    logged = sorted((s for s in slots() if not s.field.startswith(shares)), key=lambda s: s.field.split(".")[0])
    for topic, group in groupby(logged, key=lambda slot: slot.field.split(".")[0]):
        if topic == "step":
            continue
        yield from (f"## {topic}", "", "| field | unit | slot | kind | meaning |", "|---|---|---|---|---|")
        for slot in sorted(group, key=lambda slot: slot.number):
            meaning = slot.meaning.replace("|", "\\|")
            yield f"| `{slot.field}` | {slot.unit} | {slot.number} | {slot.kind} | {meaning} |"
        yield ""


def _criteria() -> Iterator[str]:
    yield from ("## What `foxhunt diag check` holds a run against", "", "| criterion | met when |", "|---|---|")
    yield from (f"| {name} | {rule} |" for name, rule in _CRITERIA.items())


def main() -> None:
    """Rewrite the three files in the source tree."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    Path(__file__).with_name(schema.FILE).write_text(schema.render())
    (docs / "slots.md").write_text(render_slots())
    (docs / "diagnostics.md").write_text(render_diagnostics())


if __name__ == "__main__":
    main()
