"""``foxhunt sweep``: several seeds and settings as runs on a Ray cluster, resumable, one table at the end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foxhunt_cli.cli.train import OPTIONS

if TYPE_CHECKING:
    from rich.table import Table

    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.sweep.on_ray import Need
    from foxhunt_cli.sweep.plan import PlannedRun
    from foxhunt_cli.sweep.work import Outcome
    from foxhunt_cli.train.signals import StopRequest

# Parameters that say how runs are carried out, not what they are: they may differ when a sweep goes on.
HOW = {"name", "cpus_per_run", "gpus_per_run", "address", "json", "quiet"}
SEEDS = 3


def sweep(
    call: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the sweep's folder in runs [time and a word].")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, metavar="N", help=f"Runs of each setting [{SEEDS}].")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="KEY=V1,V2", help="Values of a configuration key; repeat for a grid."),
    ] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="Recipe: foxhunt or seed [foxhunt].")] = None,
    steps: Annotated[int | None, typer.Option("--steps", help="Environment steps of each row [10000].")] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option("--data", metavar="FILE", help="Market data; repeat for several files [synthetic market]."),
    ] = None,
    market: Annotated[
        str | None, typer.Option("--market", help="Synthetic market: wavy, realistic or noise [wavy].")
    ] = None,
    batch: Annotated[int | None, typer.Option("-b", "--batch", help="Parallel backtests of a run [16].")] = None,
    rollout: Annotated[int | None, typer.Option("--rollout", help="Steps of an iteration [16].")] = None,
    encoder: Annotated[str | None, typer.Option("--encoder", help="Encoder network: full or mlp [full].")] = None,
    device: Annotated[str | None, typer.Option("--device", help="auto, cpu or cuda; Ray picks the GPU [auto].")] = None,
    config: Annotated[
        Path | None, typer.Option("--config", readable=False, help="TOML file of configuration keys.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set any configuration key. Repeatable.")
    ] = None,
    cpus_per_run: Annotated[
        int | None, typer.Option("--cpus-per-run", min=1, metavar="N", help="CPUs a run asks, its threads [1].")
    ] = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option("--gpus-per-run", metavar="X", help="GPUs a run asks; 0.25 lets four share one [1 on CUDA]."),
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="Ray cluster, e.g. auto or host:6379 [one of this machine].")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, only results and errors.")] = False,
) -> None:
    """Train several seeds and settings on a Ray cluster.

    Needs pip install 'foxhunt[ray]'. Every run is a foxhunt train of its own in runs/NAME. Ctrl-C lets the runs save
    and stop; the same command, or NAME alone, goes on: what is done is kept, what was stopped resumes, what failed is
    tried again. All nodes of a cluster must see that folder and the data under the same paths, and have foxhunt.

    \b
    Examples:
      foxhunt sweep --seeds 5 --steps 2000
      foxhunt sweep lr --vary isv.lr_pi=0.0003,0.001 --vary batch=16,32 --market noise
      foxhunt sweep lr
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.sweep.table import rows, run_figures
    from foxhunt_cli.train.run_dir import fresh_name

    name = name or fresh_name()
    given = {param: value for param, value in call.params.items() if value not in (None, [], ())}
    terminal = Terminal(quiet=quiet)
    runs = _asked_runs(name, given)
    folder = runs[0].config.runs_dir
    outcomes, status = _carried_out(folder, runs, given, terminal)
    figures = [run_figures(folder, run, {o.label: o.reason for o in outcomes if o.state == "failed"}) for run in runs]
    found = rows(figures)
    if json:
        terminal.json({"sweep": str(folder), "rows": found, "runs": figures})
    else:
        _show(found, figures, folder, terminal)
    raise typer.Exit(status or int(any(run["state"] == "failed" for run in figures)))


def _asked_runs(name: str, given: Mapping[str, Any]) -> list[PlannedRun]:
    """The runs of the command line, or of the sweep that NAME alone goes on with. Raises ConfigError, FileError."""
    from foxhunt_cli.config.load import ConfigError, Setting
    from foxhunt_cli.sweep import folder
    from foxhunt_cli.sweep.plan import folder_of, plan

    file, sets = given.get("config"), given.get("sets", ())
    place = folder_of(name, file, sets)
    if set(given) <= HOW | _where(sets) and folder.exists(place):
        return folder.read(place)
    options = [Setting(key, given[param], flag) for param, (key, flag) in OPTIONS.items() if param in set(given) - HOW]
    runs = plan(name, given.get("vary", ()), given.get("seeds", SEEDS), file=file, sets=sets, options=options)
    device = runs[0].config.device
    if device.startswith("cuda:"):
        raise ConfigError(f"device = {device}: Ray picks the GPU of a run; use --device cuda")
    return runs


def _where(sets: Sequence[str]) -> set[str]:
    """``sets``, where they say nothing but the place of the sweep."""
    return {"sets"} if all(text.partition("=")[0].strip() == "runs_dir" for text in sets) else set()


def _carried_out(
    place: Path, runs: Sequence[PlannedRun], given: Mapping[str, Any], terminal: Terminal
) -> tuple[list[Outcome], int]:
    """What became of the runs that were not done yet, and the status of a signal that stopped them; 0 for none.

    Raises MissingExtra, ConfigError, DeviceError, FileError.
    """
    from foxhunt_cli.sweep import folder, on_ray
    from foxhunt_cli.train.lock import lock_run
    from foxhunt_cli.train.signals import StopRequest

    folder.require_same(place, runs)
    if folder.exists(place) and all(folder.is_done(place, run.label) for run in runs):
        return [], 0
    with on_ray.cluster(given.get("address")) as ray, StopRequest() as stop:
        device = on_ray.device_for(ray, runs[0].config.device)
        need = _need(runs[0], device, given)
        on_ray.require_room(ray, need)
        folder.begin(place, runs)
        with lock_run(place, "sweeping there; wait for it or choose another NAME"):
            folder.ask_to_stop(place, False)
            todo = [run for run in runs if not folder.is_done(place, run.label)]
            for run in todo:
                folder.write_config(place, run, device, need.cpus if device == "cpu" else None)
            terminal.note(f"sweep: {place}: {len(todo)} of {len(runs)} runs to do on {device}, {need} each")
            stop.begin()  # from here on there are runs to be saved
            return _watched(ray, place, todo, need, stop, terminal), stop.exit_status


def _need(run: PlannedRun, device: str, given: Mapping[str, Any]) -> Need:
    """What each run asks of a node. Raises ConfigError on a share of a GPU that nothing can have."""
    from foxhunt_cli.config.load import ConfigError
    from foxhunt_cli.sweep.on_ray import Need

    gpus = given.get("gpus_per_run")
    if device == "cpu":
        if gpus is not None:
            raise ConfigError(f"--gpus-per-run {gpus:g}: the runs are on the CPU; leave it out or use --device cuda")
        return Need(given.get("cpus_per_run") or run.config.cpu_threads or 1, 0)
    if gpus is not None and not 0 < gpus <= 1:
        raise ConfigError(f"--gpus-per-run: expected more than 0 and at most 1, since a run uses one GPU, got {gpus:g}")
    return Need(given.get("cpus_per_run") or 1, gpus or 1)


def _watched(
    ray: Any, place: Path, todo: Sequence[PlannedRun], need: Need, stop: StopRequest, terminal: Terminal
) -> list[Outcome]:
    """Attempts the runs; one line for each that begins and ends."""
    from foxhunt_cli.sweep import on_ray
    from foxhunt_cli.sweep.table import run_figures

    by_label, ended = {run.label: run for run in todo}, 0

    def say_end(outcome: Outcome) -> None:
        nonlocal ended
        ended += 1
        text = outcome.reason
        if outcome.state == "done":
            figures = run_figures(place, by_label[outcome.label], {})
            net = _figure(figures["net"].get("agent", float("nan")))
            text = f"{net} net USD / 1,000 steps, {figures['seconds']:,.1f} s"
        text = f": {text}" if text else ""
        terminal.note(f"{outcome.state} {outcome.label} ({ended} of {len(todo)}){text}")

    return on_ray.conduct(
        ray, place, list(by_label), need, stop=stop, ended=say_end, note=terminal.note,
    )  # fmt: skip


def _show(found: Sequence[dict[str, Any]], figures: Sequence[dict[str, Any]], place: Path, terminal: Terminal) -> None:
    """The table, then what failed and why, then how to go on."""
    terminal.show("held-out data, greedy policy: net USD / 1,000 steps, medians over the seeds; rule: the best one")
    terminal.show(_table(found))
    failed = [run for run in figures if run["state"] == "failed"]
    if failed:
        terminal.show("")
    for run in failed:
        terminal.show(f"failed: {run['label']}: {run['reason']}")
    name = shlex.quote(str(place))
    if any(run["state"] != "done" for run in figures):
        terminal.show(f"\nlogs: {name}/logs\ngo on with the same command, or: {_again(place)}")
    terminal.show(f"\nsweep: {name}")


def _again(place: Path) -> str:
    """The shortest command that goes on with it."""
    elsewhere = "" if place.parent == Path("runs").absolute() else f" --set runs_dir={shlex.quote(str(place.parent))}"
    return f"foxhunt sweep {shlex.quote(place.name)}{elsewhere}"


def _table(found: Sequence[dict[str, Any]]) -> Table:
    from foxhunt_cli.cli.tables import plain_table
    from foxhunt_cli.sweep.plan import words

    table = plain_table(
        "setting", "done", "net", "least", "largest", "critic", "rule", "", "trades", "seconds",
        left=("setting", ""),
    )  # fmt: skip
    for column in table.columns:
        column.no_wrap = True  # a figure cut in two reads as two
    for row in found:
        table.add_row(
            words(row["setting"]),
            f"{row['done']} of {row['seeds']}",
            *(_figure(row[key]) for key in ("net", "least", "largest", "critic", "rule net")),
            row["rule"] or "",
            _figure(row["trades"]),
            "n/a" if row["seconds"] != row["seconds"] else f"{row['seconds']:,.1f}",
        )
    return table


def _figure(value: float) -> str:
    """A figure of the table; n/a for none."""
    return "n/a" if value != value else f"{value:,.0f}"
