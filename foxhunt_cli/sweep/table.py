"""What a sweep found: figures of its runs, and over the seeds of each setting. Reads run directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from foxhunt_cli.bench.curves import RULES, middle
from foxhunt_cli.bench.learn import best_rule
from foxhunt_cli.diag.verdict import NET
from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.market.evaluate import AGENT, CRITIC
from foxhunt_cli.sweep.folder import is_done
from foxhunt_cli.sweep.plan import PlannedRun
from foxhunt_cli.train import run_dir

_NAN = float("nan")
_PLAYED = (AGENT, CRITIC, *RULES)


def run_figures(folder: Path, run: PlannedRun, reasons: Mapping[str, str]) -> dict[str, Any]:
    """One run: its state, and where it is done what it earned on held-out data, net USD per 1,000 steps by policy.

    reasons: of runs that failed, by label. trades: of the agent there; seconds: of training. Raises FileError.
    """
    found = {"label": run.label, "setting": run.setting, "seed": run.seed, "state": "unfinished", "reason": None}
    if run.label in reasons:
        return found | {"state": "failed", "reason": reasons[run.label]}
    if not is_done(folder, run.label):
        return found
    path = folder / run.label
    seconds = run_dir.read_manifest(path)["summary"]["seconds"]
    policies = _evaluation(path / "eval" / "final.json") if run.config.holdout else {}
    net = {who: _number(policies[who].get(NET)) for who in _PLAYED if who in policies}
    trades = _number(policies.get(AGENT, {}).get("trades"))
    return found | {"state": "done", "net": net, "trades": trades, "seconds": seconds}


def rows(figures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a setting, in the order they came: medians over its runs that are done, and the range of the agent's net.

    NaN where there is no number.
    """
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in figures:
        groups.setdefault(repr(run["setting"]), []).append(run)
    return [_row(group) for group in groups.values()]


def _row(group: Sequence[dict[str, Any]]) -> dict[str, Any]:
    done = [run for run in group if run["state"] == "done"]
    net = {who: [run["net"][who] for run in done if who in run["net"]] for who in _PLAYED}
    medians = {who: {NET: middle(net[who])} for who in RULES if net[who]}
    rule = best_rule(medians) if medians else None
    own = [value for value in net[AGENT] if value == value]
    return {
        "setting": group[0]["setting"],
        "seeds": len(group),
        "done": len(done),
        "failed": sum(run["state"] == "failed" for run in group),
        "net": middle(own),
        "least": min(own, default=_NAN),
        "largest": max(own, default=_NAN),
        "critic": middle(net[CRITIC]),
        "rule": rule,
        "rule net": medians[rule][NET] if rule else _NAN,
        "trades": middle([run["trades"] for run in done]),
        "seconds": middle([run["seconds"] for run in done]),
    }


def _evaluation(path: Path) -> dict[str, dict[str, Any]]:
    try:
        return orjson.loads(path.read_bytes())["policies"]
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}; remove the run's folder to have it trained again") from None
    except (orjson.JSONDecodeError, KeyError, TypeError):
        raise FileError(f"{path}: not an evaluation; remove the run's folder to have it trained again") from None


def _number(value: float | None) -> float:
    return _NAN if value is None else float(value)
