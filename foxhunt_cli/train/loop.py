"""The training loop on the host: iterate, drain, log, evaluate, stop.

Owns the order of a run's life. The device does the work; between drains the host only enqueues iterations.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.diag.fields import live_slots, record
from foxhunt_cli.diag.writer import RunLogWriter
from foxhunt_cli.isv.seeds import preset_seeds
from foxhunt_cli.isv.table import number
from foxhunt_cli.market.evaluate import AGENT, Evaluation, Evaluator
from foxhunt_cli.train import checkpoint, run_dir
from foxhunt_cli.train.engine import Engine
from foxhunt_cli.train.lock import lock_run
from foxhunt_cli.train.notes import LoggedTerminal
from foxhunt_cli.train.progress import Progress
from foxhunt_cli.train.resume import cut_log, newest_sound
from foxhunt_cli.train.signals import StopRequest
from foxhunt_cli.train.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal

NET = "net USD / 1,000 steps"  # the metric that a best checkpoint is chosen by
_LOOK_EVERY_S = 0.5  # how long the device is left alone at most
# Sums over the run, by the slot whose iterations they add up.
_TOTALS = {"pnl_usd": "PNL_STEP_USD", "fees_usd": "FEES_STEP_USD", "trades": "TRADES_CLOSED", "wins": "WINS"}


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
    terminal: LoggedTerminal
    engine: Engine
    evaluator: Evaluator | None
    path: Path
    lock: IO[str]
    log: RunLogWriter
    manifest: dict[str, Any]
    iterations: int = 0
    totals: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_TOTALS, 0.0))
    seconds: float = 0.0
    session_seconds: float = 0.0
    started_at: int = 0
    best: tuple[int, float] | None = None
    """Step and held-out net USD per 1,000 steps of the best checkpoint, where the run keeps one."""

    @property
    def step(self) -> int:
        """Environment steps done by a row."""
        return self.iterations * self.config.rollout


def train(config: RunConfig, terminal: Terminal, resume: Path | None = None) -> RunSummary:
    """Train a new run, or continue ``resume``, and return how it ended. Raises what the CLI maps to exit statuses."""
    logged = LoggedTerminal(terminal)
    with StopRequest() as stop:
        run = _continue(resume, config, logged, stop) if resume is not None else _start(config, logged, stop)
        with run.lock, run.log:
            _loop(run, stop)
            return _finish(run, stop.exit_status)


def _start(config: RunConfig, terminal: LoggedTerminal, stop: StopRequest) -> Run:
    work = open_workspace(config, terminal)
    stop.begin()  # a run directory is made whole, or not at all
    path = run_dir.create(config)
    try:
        return _begin(path, config, terminal, work)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise


def _begin(path: Path, config: RunConfig, terminal: LoggedTerminal, work: Workspace) -> Run:
    """The first files of a new run."""
    lock = lock_run(path)
    terminal.log_to(path / run_dir.NOTES)
    seeds = preset_seeds(config.preset) | config.isv
    engine = work.engine
    manifest = run_dir.manifest(config, engine.device.describe(), work.data_facts(), seeds, engine.kernels)
    run_dir.write_manifest(path, manifest)
    terminal.note(f"run: {path}")
    log = RunLogWriter(path / run_dir.RUN_LOG)
    return Run(config, terminal, engine, work.evaluator, path, lock, log, manifest)


def _continue(path: Path, config: RunConfig, terminal: LoggedTerminal, stop: StopRequest) -> Run:
    manifest = run_dir.read_manifest(path)
    lock = lock_run(path)
    terminal.log_to(path / run_dir.NOTES)
    folder, saved, refused = newest_sound(path)
    for line in refused:
        terminal.note(f"resume: {line}")
    with run_dir.data_of(path):
        work = open_workspace(config, terminal)
    work.require_data_of(manifest)
    if run_dir.kernel_hash() != manifest["kernel_hash"]:
        terminal.note("resume: the kernels have changed since the run began: it will not be bit-identical")
    stop.begin()  # what follows changes files of the run
    checkpoint.restore(work.engine, saved)
    work.engine.drained = work.engine.done = int(saved["diag_head"][0])
    progress = checkpoint.progress(folder)
    cut_log(path / run_dir.RUN_LOG, progress["step"])
    terminal.note(f"resume: {path} from step {progress['step']:,}")
    if progress["step"] >= config.iterations * config.rollout:
        terminal.note("resume: the run has its whole length; give --steps, more than it has done, to train on")
    done = progress["step"] // config.rollout
    manifest |= {"config": run_dir.recorded(config), "status": "running"}
    run_dir.write_manifest(path, manifest)
    log = RunLogWriter(path / run_dir.RUN_LOG)
    run = Run(config, terminal, work.engine, work.evaluator, path, lock, log, manifest, done, progress["totals"])
    run.seconds, run.started_at = progress["seconds"], done
    if config.best and (folder := checkpoint.best(path, run.step)):
        facts = checkpoint.progress(folder)
        run.best = (facts["step"], facts["held_out"])
    return run


def _loop(run: Run, stop: StopRequest) -> None:
    config = run.config
    eval_every, save_every = (-(-n // config.rollout) for n in (config.eval_every, config.checkpoint_every))
    live = live_slots(run.engine.kernels, run.engine.slots)
    with Progress(run.terminal, config.iterations * config.rollout) as progress:
        while run.iterations < config.iterations and not stop.requested:
            count = _until_pause(run, (eval_every, save_every))
            started = time.perf_counter()
            for _ in range(count):
                run.engine.iterate()
            drained = run.engine.drain()
            elapsed = time.perf_counter() - started
            run.seconds += elapsed
            run.session_seconds += elapsed
            _log(run, drained, live, elapsed, progress)
            _stop_on_fault(run)
            if run.iterations < config.iterations and not stop.requested:
                _at_milestones(run, eval_every, save_every)


def _until_pause(run: Run, milestones: tuple[int, ...]) -> int:
    """Iterations until the host must look again: half a second, a drain, a milestone or the end."""
    done = run.iterations - run.started_at
    count = min(run.config.drain_every, run.config.iterations - run.iterations)
    per_iteration = run.session_seconds / done if done else float("inf")
    count = min(count, max(1, int(_LOOK_EVERY_S / per_iteration)))
    for every in milestones:
        if every:
            count = min(count, every - run.iterations % every)
    return count


def _at_milestones(run: Run, eval_every: int, save_every: int) -> None:
    if save_every and run.iterations % save_every == 0:
        _save(run)
    if eval_every and run.evaluator and run.iterations % eval_every == 0:
        _evaluate(run)


def _save(run: Run) -> Path:
    run.log.sync()  # a checkpoint must not outlive the lines before it
    folder = checkpoint.save(run.engine, run.path / "checkpoints", run.step, run.totals, run.seconds)
    checkpoint.prune(run.path, run.config.keep, run.step)
    return folder


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
    for key, slot in _TOTALS.items():
        run.totals[key] += float(drained[:, number(slot)].sum(dtype=np.float64))
    run.log.write(r for r in records if r["iteration"] % config.log_every == 0 or r["iteration"] == config.iterations)
    progress.update(records[-1], float(drained[:, number("PNL_STEP_USD")].sum()), rate)


def _stop_on_fault(run: Run) -> None:
    """The device's sticky flag ends the run; everything up to here is in the log, the last checkpoint stays."""
    if run.engine.faulted():
        run.manifest["status"] = "numeric fault"
        run_dir.write_manifest(run.path, run.manifest)
        raise NumericFault(
            f"{run.path}: non-finite gradients in three updates in a row near step {run.step:,}; training stopped. "
            f"See 'foxhunt diag summarize {run.path / run_dir.RUN_LOG}'; lower isv.lr_pi, isv.lr_v or isv.lr_aux"
        )


def _evaluate(run: Run) -> Evaluation:
    assert run.evaluator is not None
    evaluation = run.evaluator.agent()
    run_dir.write_json(run.path / "eval" / f"step-{run.step:09d}.json", evaluation.as_dict())
    figures = (f"{who} {p[NET]:+,.1f} ({p['trades']:,.0f} trades)" for who, p in evaluation.policies.items())
    run.terminal.note(f"eval at step {run.step:,}, net USD per 1,000 steps: {', '.join(figures)}")
    _keep_if_best(run, evaluation)
    return evaluation


def _keep_if_best(run: Run, evaluation: Evaluation) -> None:
    """A checkpoint of its own for the state whose policy has earned most on the held-out range so far."""
    earned = evaluation.policies[AGENT][NET]
    if not run.config.best or (run.best is not None and not earned > run.best[1]):
        return
    run.log.sync()
    folder = checkpoint.save(run.engine, run.path / "checkpoints", run.step, run.totals, run.seconds, best=earned)
    checkpoint.keep_best(run.path, folder)
    run.best = (run.step, earned)


def _finish(run: Run, status: int) -> RunSummary:
    folder = _save(run)
    evaluation = None
    if status == 0 and run.evaluator is not None:
        evaluation = run.evaluator.all_policies()
        _keep_if_best(run, evaluation)
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
        **({} if run.best is None else {"best_step": run.best[0], "best_net_usd_per_1000_steps": run.best[1]}),
    }
    run.manifest |= {"status": "done" if status == 0 else "interrupted", "summary": figures}
    run_dir.write_manifest(run.path, run.manifest)
    return RunSummary(run.path, status, figures, evaluation)
