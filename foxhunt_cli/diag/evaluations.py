"""The evaluations beside a run's log: figures by policy, as far as a file can be trusted."""

from __future__ import annotations

import json
from pathlib import Path

Figures = dict[str, float | None]


def read_evaluation(path: Path) -> dict[str, Figures] | None:
    """Numbers by policy; None where there is no such file, empty where it holds no evaluation."""
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return {}
    policies = document.get("policies") if isinstance(document, dict) else None
    if not isinstance(policies, dict):
        return {}
    return {name: _numbers(figures) for name, figures in policies.items() if isinstance(figures, dict)}


def last_evaluation(run: Path) -> dict[str, Figures] | None:
    """That of the end of the run, or the newest on the way; as ``read_evaluation``."""
    folder = run / "eval"
    for path in (folder / "final.json", *sorted(folder.glob("step-*.json"), reverse=True)):
        if (found := read_evaluation(path)) is not None:
            return found
    return None


def _numbers(figures: dict) -> Figures:
    return {name: v for name, v in figures.items() if v is None or (isinstance(v, int | float) and v is not True)}
