"""A made-up run log with a story: it learns, it trades, and one loss breaks down near the end."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BATCH, ROLLOUT = 16, 16


def records(iterations: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """One record an iteration, in the shape that the trainer writes."""
    rng = random.Random(seed)
    for index in range(1, iterations + 1):
        done = index / iterations
        trades = max(0, round(rng.gauss(6, 2)))
        hold = 0.2 + 0.5 * done
        yield {
            "step": index * ROLLOUT,
            "iteration": index,
            "time": 1_700_000_000.0 + 0.05 * index,
            "loss": {"total": 3 * math.exp(-3 * done) + rng.gauss(1, 0.05), "pi": rng.gauss(0, 0.01), "q": 0.0},
            "controllers": {"gamma": 0.997, "entropy_coef": 0.01 * (1 - 0.5 * done)},
            "signals": {"entropy_observed_ema": 2.39 - 1.2 * done},
            "actions": {"share": [(1 - hold) / 10] * 2 + [hold] + [(1 - hold) / 10] * 8, "overridden_share": 0.1},
            "market": {
                "pnl_step_usd": rng.gauss(-40 + 90 * done, 30),
                "fees_step_usd": 4.1 * trades,
                "trades_closed": trades,
                "wins": min(trades, max(0, round(rng.gauss(0.5 * trades, 1)))),
                "equity_mean": 100 * done,
            },
            "perf": {"env_steps_per_s": 5_000 + rng.gauss(0, 100), "step_us": 200.0},
            "nonfinite": [],
        }


def write_run(directory: Path, rows: list[dict[str, Any]], tail: bytes = b"") -> Path:
    """A run directory with manifest and log; ``tail`` is written after the last line as it is."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "manifest.json").write_text(json.dumps({"config": {"batch": BATCH}}))
    lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    (directory / "run.jsonl").write_bytes(lines + tail)
    return directory
