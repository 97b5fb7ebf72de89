"""The training loop on the host: iterate, drain, log, evaluate, stop.

Owns the order of a run's life. The device does the work; between drains the host only enqueues iterations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.report import CleaningReport
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.device.select import select
from foxhunt_cli.diag.fields import live_slots, record
from foxhunt_cli.diag.writer import RunLogWriter
from foxhunt_cli.isv.seeds import preset_seeds
from foxhunt_cli.isv.table import number
from foxhunt_cli.market.evaluate import Evaluation, Evaluator
from foxhunt_cli.train import checkpoint, run_dir
from foxhunt_cli.train.compile_bar import compile_bar
from foxhunt_cli.train.engine import Engine, build_engine, compile_run
from foxhunt_cli.train.prepare import prepare_training
from foxhunt_cli.train.progress import Progress
from foxhunt_cli.train.signals import StopRequest
from foxhunt_cli.train.split import Split, split

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal


class NumericFault(RuntimeError):
    """Three updates in a row were not finite: training stopped; the message names the step and what to look at."""


@dataclass
class RunSummary:
    """How a run ended. ``figures`` are in the manifest and in the final table."""

    run: Path
    exit_status: int
    figures: dict[str, Any] = field(default_factory=dict)
    evaluation: Evaluation | None = None


@dataclass
class Run:
    """One run under way."""

    config: RunConfig
    terminal: Terminal
    engine: Engine
    evaluator: Evaluator | None
    path: Path
    log: RunLogWriter
    manifest: dict[str, Any]
    iterations: int = 0
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("pnl_usd", "fees_usd", "trades", "wins"), 0.0))
    seconds: float = 0.0

    @property
    def step(self) -> int:
        """Environment steps done by a row."""
        return self.iterations * self.config.rollout


def train(config: RunConfig, terminal: Terminal) -> RunSummary:
    """Train a new run from ``config`` and return how it ended. Raises what the CLI maps to exit statuses."""
    run = _start(config, terminal)
    with run.log, StopRequest() as stop:
        _loop(run, stop)
        status = stop.exit_status
        return _finish(run, status)


def _start(config: RunConfig, terminal: Terminal) -> Run:
    selection = select(config.device, precision=config.precision, threads=config.cpu_threads)
    terminal.note(selection.line)
    device = selection.device
    market = load_market_data(config.paths or None, config.data, config.synthetic)
    terminal.note(f"data: {market.source}")
    for line in _report_lines(market.report):
        terminal.note(f"data: {line}")
    parts = split(market, config.holdout)
    with compile_bar(terminal) as progress:
        compile_run(device, config, progress)
    data = prepare_training(device, parts.train, config)
    for line in data.notes:
        terminal.note(f"data: {line}")
    engine = build_engine(device, config, data)
    evaluator = _evaluator(config, engine, parts, data.sigmas)
    path = run_dir.create(config)
    manifest = run_dir.manifest(config, device.describe(), _data_facts(market, parts), preset_seeds("foxhunt") | config.isv)
    run_dir.write_json(path / run_dir.MANIFEST, manifest)
    terminal.note(f"run: {path}")
    return Run(config, terminal, engine, evaluator, path, RunLogWriter(path / run_dir.RUN_LOG), manifest)


def _report_lines(report: CleaningReport) -> list[str]:
    """What the cleaning stage found, one line a reason."""
    found = [
        f"{f.count:,} {f.reason} ({'dropped' if f.dropped else 'kept'}; first: record {f.first_record:,} {f.example})".rstrip()
        for f in report.findings
    ]
    return [*found, *report.warnings]


def _data_facts(market: Any, parts: Split) -> dict[str, Any]:
    return {
        "source": market.source,
        "digest": market.digest,
        "snapshots": len(market.records),
        "train_snapshots": len(parts.train.records),
        "held_out_snapshots": len(parts.held_out.records) if parts.held_out else 0,
        "purge_snapshots": parts.purge,
        "reference_ticks": market.reference_ticks,
        "instrument": market.instrument.model_dump(mode="json"),
    }


def _evaluator(config: RunConfig, engine: Engine, parts: Split, sigmas: np.ndarray) -> Evaluator | None:
    return Evaluator(config, engine, parts.held_out, sigmas) if parts.held_out is not None else None


def _loop(run: Run, stop: StopRequest) -> None:
    config = run.config
    eval_every = -(-config.eval_every // config.rollout) if config.eval_every else 0
    live = live_slots(run.engine.kernels)
    with Progress(run.terminal, config.iterations * config.rollout) as progress:
        while run.iterations < config.iterations and not stop.requested:
            count = _until_pause(run, eval_every)
            started = time.perf_counter()
            for _ in range(count):
                run.engine.iterate()
            drained = run.engine.drain()
            elapsed = time.perf_counter() - started
            run.seconds += elapsed
            _log(run, drained, live, elapsed, progress)
            _stop_on_fault(run)
            if eval_every and run.evaluator and run.iterations % eval_every == 0 and run.iterations < config.iterations:
                _evaluate(run)


def _until_pause(run: Run, eval_every: int) -> int:
    """Iterations until the host must look again: a drain, an evaluation or the end; few on a terminal or a slow device."""
    left = run.config.iterations - run.iterations
    count = min(run.config.drain_every, left)
    if run.iterations:
        per_iteration = run.seconds / run.iterations
        count = min(count, max(1, int(0.5 / max(per_iteration, 1e-9))))
    else:
        count = 1
    return min(count, eval_every - run.iterations % eval_every) if eval_every else count


def _log(run: Run, drained: np.ndarray, live: Any, elapsed: float, progress: Progress) -> None:
    config, count = run.config, len(drained)
    rate = count * config.rollout * config.batch / elapsed
    now = time.time()
    records = []
    for isv in drained:
        run.iterations += 1
        extra = {"step": 0, "iteration": run.iterations, "time": round(now, 3), "perf.env_steps_per_s": round(rate, 1)}
        extra["perf.step_us"] = round(elapsed / count / config.rollout * 1e6, 2)
        records.append(record(isv, live, extra))
    for key, slot in (("pnl_usd", "PNL_STEP_USD"), ("fees_usd", "FEES_STEP_USD"), ("trades", "TRADES_CLOSED"), ("wins", "WINS")):
        run.totals[key] += float(drained[:, number(slot)].sum(dtype=np.float64))
    run.log.write(r for r in records if r["iteration"] % config.log_every == 0 or r["iteration"] == config.iterations)
    progress.update(records[-1], float(drained[:, number("PNL_STEP_USD")].sum()), rate)


def _stop_on_fault(run: Run) -> None:
    """The device's sticky flag ends the run; everything up to here is in the log, the last checkpoint stays."""
    if int(run.engine.device.download(run.engine.arrays["fault"])[1]):
        run.manifest["status"] = "numeric fault"
        run_dir.write_json(run.path / run_dir.MANIFEST, run.manifest)
        raise NumericFault(
            f"{run.path}: non-finite gradients in three updates in a row near step {run.step:,}; training stopped. "
            f"See 'foxhunt diag summarize {run.path / run_dir.RUN_LOG}'; lower isv.lr_pi, isv.lr_v or isv.lr_aux"
        )


def _evaluate(run: Run) -> Evaluation:
    assert run.evaluator is not None
    evaluation = run.evaluator.agent()
    run_dir.write_json(run.path / "eval" / f"step-{run.step:09d}.json", evaluation.as_dict())
    agent = evaluation.policies["agent"]
    run.terminal.note(
        f"eval at step {run.step:,}: net {agent['net USD / 1,000 steps']:+,.1f} USD per 1,000 steps, "
        f"{agent['trades']:,.0f} trades"
    )
    return evaluation


def _finish(run: Run, status: int) -> RunSummary:
    folder = checkpoint.save(run.engine, run.path / "checkpoints", run.step)
    evaluation = None
    if status == 0 and run.evaluator is not None:
        evaluation = run.evaluator.all_policies()
        run_dir.write_json(run.path / "eval" / "final.json", evaluation.as_dict())
    moments = max(run.iterations, 1) * run.config.rollout * run.config.batch
    figures = {
        "steps": run.step,
        "rows": run.config.batch,
        "seconds": round(run.seconds, 2),
        "env_steps_per_s": round(moments / max(run.seconds, 1e-9), 1),
        "training_net_usd_per_1000_steps": run.totals["pnl_usd"] / moments * 1000.0,
        "training_trades": run.totals["trades"],
        "training_win_rate": run.totals["wins"] / run.totals["trades"] if run.totals["trades"] else None,
        "checkpoint": str(folder.relative_to(run.path)),
    }
    run.manifest |= {"status": "done" if status == 0 else "interrupted", "summary": figures}
    run_dir.write_json(run.path / run_dir.MANIFEST, run.manifest)
    return RunSummary(run.path, status, figures, evaluation)
