"""``foxhunt train``: options to a RunConfig, then the training loop.

Owns the names of the options. ``OPTIONS`` maps each to the configuration key it sets; an option that was not given
leaves the key to the files and defaults.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from foxhunt_cli.config.load import Setting
    from foxhunt_cli.config.run import RunConfig

# Parameter of the command -> (configuration key, the option as users write it).
OPTIONS = {
    "preset": ("preset", "--preset"),
    "steps": ("steps", "--steps"),
    "data": ("paths", "--data"),
    "batch": ("batch", "--batch"),
    "rollout": ("rollout", "--rollout"),
    "updates": ("updates", "--updates"),
    "replay_batch": ("replay_batch", "--replay-batch"),
    "critic_grad": ("critic_grad", "--critic-grad"),
    "replay_encoding": ("replay_encoding", "--replay-encoding"),
    "gae_lambda": ("isv.gae_lambda", "--gae-lambda"),
    "hindsight": ("hindsight", "--hindsight"),
    "hindsight_directions": ("hindsight_directions", "--hindsight-directions"),
    "reward": ("reward", "--reward"),
    "context": ("context", "--context"),
    "encoder": ("encoder", "--encoder"),
    "seed": ("seed", "--seed"),
    "name": ("name", "--name"),
    "device": ("device", "--device"),
    "cpu_threads": ("cpu_threads", "--cpu-threads"),
    "precision": ("precision", "--precision"),
    "graph": ("graph", "--no-graph"),
    "latency_steps": ("latency_steps", "--latency-steps"),
    "log_every": ("log_every", "--log-every"),
    "checkpoint_every": ("checkpoint_every", "--checkpoint-every"),
    "keep": ("keep", "--keep"),
    "best": ("best", "--best"),
    "eval_every": ("eval_every", "--eval-every"),
    "market": ("synthetic.preset", "--market"),
    "symbol": ("data.symbol", "--symbol"),
    "instrument": ("data.instrument", "--instrument"),
    "instrument_id": ("data.instrument_id", "--instrument-id"),
    "tick_size": ("data.tick_size", "--tick-size"),
    "session_gap": ("data.session_gap_s", "--session-gap"),
    "fee": ("data.fee", "--fee"),
    "lot_limit": ("lot_limit", "--lot-limit"),
    "max_snapshots": ("data.max_snapshots", "--max-snapshots"),
    "start": ("data.start", "--start"),
    "end": ("data.end", "--end"),
    "allow_dirty": ("data.allow_dirty", "--allow-dirty"),
}
# Parameters that say how a file is read; on the synthetic market they would do nothing, and not say so.
OF_FILES = ("symbol", "instrument_id", "session_gap", "start", "end", "allow_dirty")


def train(
    call: typer.Context,
    preset: Annotated[str | None, typer.Option("--preset", help="Recipe: foxhunt or seed [foxhunt].")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Environment steps of each row [10000].")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data", metavar="FILE", readable=False, help="Market data; repeat for several files [synthetic market]."
        ),
    ] = None,
    batch: Annotated[int | None, typer.Option("-b", "--batch", help="Parallel backtests [16].")] = None,
    rollout: Annotated[int | None, typer.Option("--rollout", help="Steps of an iteration [16].")] = None,
    updates: Annotated[
        int | None, typer.Option("--updates", help="Critic updates an iteration; 0 = PPO alone [4].")
    ] = None,
    replay_batch: Annotated[int | None, typer.Option("--replay-batch", help="Rows of a critic update [256].")] = None,
    critic_grad: Annotated[
        bool | None, typer.Option("--critic-grad", help="The critic's loss teaches the encoder too.")
    ] = None,
    replay_encoding: Annotated[
        str | None, typer.Option("--replay-encoding", help="stored, or fresh: encoded anew for each update [stored].")
    ] = None,
    gae_lambda: Annotated[
        float | None, typer.Option("--gae-lambda", help="Lambda of the advantages, 0 to 1 [0.95].")
    ] = None,
    hindsight: Annotated[str | None, typer.Option("--hindsight", help="none, close, peak or path [path].")] = None,
    hindsight_directions: Annotated[
        str | None, typer.Option("--hindsight-directions", help="both, backward, forward or off [both].")
    ] = None,
    reward: Annotated[str | None, typer.Option("--reward", help="mark_to_market or realised [mark_to_market].")] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="Where the position enters: heads or encoder [heads].")
    ] = None,
    encoder: Annotated[str | None, typer.Option("--encoder", help="Encoder network: full or mlp [full].")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed of every random stream [0].")] = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the run directory [time and a word].")] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu, cuda or cuda:N [auto].")] = None,
    cpu_threads: Annotated[int | None, typer.Option("--cpu-threads", help="Threads of the CPU device.")] = None,
    precision: Annotated[str | None, typer.Option("--precision", help="tf32 or fp32, on CUDA [tf32].")] = None,
    graph: Annotated[bool | None, typer.Option("--graph/--no-graph", help="Replay an iteration as one graph.")] = None,
    latency_steps: Annotated[int | None, typer.Option("--latency-steps", help="Snapshots to a fill [1].")] = None,
    log_every: Annotated[int | None, typer.Option("--log-every", help="Iterations a line of run.jsonl [1].")] = None,
    eval_every: Annotated[
        int | None, typer.Option("--eval-every", help="Steps between evaluations, 0 = never [2000].")
    ] = None,
    checkpoint_every: Annotated[
        int | None, typer.Option("--checkpoint-every", help="Steps between checkpoints, 0 = only at the end [1000].")
    ] = None,
    keep: Annotated[int | None, typer.Option("--keep", help="Checkpoints kept [3].")] = None,
    best: Annotated[
        bool | None, typer.Option("--best", help="Also keep the checkpoint that earns most on held-out data.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option("--resume", metavar="RUN", help="Continue a run from its newest checkpoint.")
    ] = None,
    market: Annotated[
        str | None, typer.Option("--market", help="Synthetic market: wavy, realistic or noise [wavy].")
    ] = None,
    symbol: Annotated[str | None, typer.Option("--symbol", help="Which symbol of a file with several.")] = None,
    instrument: Annotated[str | None, typer.Option("--instrument", help="Instrument preset, e.g. ES, EQUITY.")] = None,
    instrument_id: Annotated[int | None, typer.Option("--instrument-id", help="Which instrument of a file.")] = None,
    tick_size: Annotated[str | None, typer.Option("--tick-size", help="Tick size, e.g. 0.25 or 1/64.")] = None,
    session_gap: Annotated[
        float | None, typer.Option("--session-gap", metavar="SECONDS", help="A longer pause ends a session [1800].")
    ] = None,
    fee: Annotated[float | None, typer.Option("--fee", help="Fee per lot per side, USD.")] = None,
    lot_limit: Annotated[int | None, typer.Option("--lot-limit", help="Largest position, lots [4].")] = None,
    max_snapshots: Annotated[int | None, typer.Option("--max-snapshots", help="Use at most so many.")] = None,
    start: Annotated[str | None, typer.Option("--start", help="First time used, ISO, UTC.")] = None,
    end: Annotated[str | None, typer.Option("--end", help="Time to stop before, ISO, UTC.")] = None,
    allow_dirty: Annotated[
        bool | None, typer.Option("--allow-dirty", help="Train although over 5 % of the records were dropped.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", readable=False, help="TOML file of configuration keys.")
    ] = None,
    seeds: Annotated[
        Path | None, typer.Option("--seeds", readable=False, help="TOML file with a table [isv] of seeds.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set any configuration key. Repeatable.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, only results and errors.")] = False,
) -> None:
    """Train an agent.

    Ends with a summary and the path of the run; Ctrl-C ends it cleanly. Values in [brackets] are defaults.
    Later wins: defaults, --config, --seeds, --set, the other options.

    \b
    Examples:
      foxhunt train --steps 2000
      foxhunt train --market noise -b 32 --set isv.lr_pi=0.0005 --set holdout=0.3
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.cli.report import show_summary
    from foxhunt_cli.config.load import Setting, load_config, parse_set

    given = {param: value for param, value in call.params.items() if value not in (None, [], ())}
    options = [Setting(key, given[param], option) for param, (key, option) in OPTIONS.items() if param in given]
    if resume is not None:
        run_config = _resumed(resume, config or seeds, [*map(parse_set, sets or ()), *options])
    else:
        run_config = load_config(config, seeds, sets or (), options)
        _refuse_idle(given, run_config)

    from foxhunt_cli.train.loop import train as run

    terminal = Terminal(quiet=quiet)
    summary = run(run_config, terminal, resume)
    show_summary(summary, run_config, terminal)
    raise typer.Exit(summary.exit_status)


def _refuse_idle(given: dict[str, object], config: RunConfig) -> None:
    """Raises BadParameter on an option that the kind of data chosen has no use for."""
    if config.paths is not None and "market" in given:
        raise typer.BadParameter(f"--market: names a synthetic market, the data are {config.paths[0]}; leave out one")
    for name in OF_FILES:
        if config.paths is None and name in given:
            raise typer.BadParameter(
                f"{OPTIONS[name][1]}: says how files are read, and there is none; name it with --data"
            )


def _resumed(run: Path, file: Path | None, settings: list[Setting]) -> RunConfig:
    """The config of a run that goes on. Raises ConfigError where something else than its length was to change."""
    from foxhunt_cli.config.load import ConfigError
    from foxhunt_cli.train.resume import resumed_config

    if file is not None:
        raise ConfigError(f"{file}: a resumed run keeps its configuration; give --resume without --config and --seeds")
    return resumed_config(run, settings)
