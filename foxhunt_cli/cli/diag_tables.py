"""``foxhunt diag slots``, ``pipeline`` and ``kernels``: the program's own tables, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.device.resources import Resources
    from foxhunt_cli.isv.table import Slot
    from foxhunt_cli.kernels.contract import KernelContract
    from foxhunt_cli.pipeline.plan import Part, PlanLine

JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]
Words = Annotated[list[str] | None, typer.Argument(metavar="WORD", help="Only rows that contain one of these.")]


def slots(
    words: Words = None,
    kind: Annotated[str, typer.Option("--kind", help="Only tunable, control, signal or diag.")] = "",
    json: JSON = False,
) -> None:
    """List the slots of the internal state vector.

    They are what a run can be seeded with and what it reports. A tunable or control is set with --set
    isv.NAME=VALUE, in lower case; the last word of a row is its field of run.jsonl.

    \b
    Examples:
      foxhunt diag slots lr_
      foxhunt diag slots --kind tunable --json
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.isv.seeds import PRESETS, preset_seeds
    from foxhunt_cli.isv.table import KINDS
    from foxhunt_cli.isv.table import slots as table

    if kind and kind not in KINDS:
        raise typer.BadParameter(f"--kind: expected one of {', '.join(KINDS)}, got '{kind}'")
    chosen = [
        slot
        for slot in table()
        if kind in ("", slot.kind) and _named(f"{slot.name} {slot.field} {slot.meaning}", words)
    ]
    if not chosen:
        raise typer.BadParameter(
            f"no slot contains {' or '.join(map(repr, words or ()))}; 'foxhunt diag slots' lists all"
        )
    terminal = Terminal()
    # By preset, the default one first. The table's own seeds are those of preset seed but for its few differences.
    seeds = [{f"seed_{p}": preset_seeds(p).get(slot.name.lower(), slot.seed) for p in PRESETS} for slot in chosen]
    if json:
        terminal.json([{**vars(slot), **own} for slot, own in zip(chosen, seeds, strict=True)])
        return
    for slot, own in zip(chosen, seeds, strict=True):
        _show_slot(slot, *own.values(), terminal)


def pipeline(
    phase: Annotated[str, typer.Argument(metavar="PHASE", help="training, playing or following.")] = "training",
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set any configuration key. Repeatable.")
    ] = None,
    brief: Annotated[bool, typer.Option("--brief", help="Without what each step reads and writes.")] = False,
    json: JSON = False,
) -> None:
    """Print the ordered list of an iteration.

    Each step with its grid, its block, what it reads and what it writes; repeats are shown once.

    \b
    Examples:
      foxhunt diag pipeline --brief
      foxhunt diag pipeline playing --set encoder=mlp --set batch=64 --json
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.config.instruments import LOT_LIMIT
    from foxhunt_cli.config.load import load_config
    from foxhunt_cli.pipeline import iteration, learn
    from foxhunt_cli.pipeline.plan import fold, plan_lines
    from foxhunt_cli.train.shapes import shape_of

    phases = {name: getattr(iteration, name) for name in ("training", "playing", "following")}
    if phase not in phases:
        raise typer.BadParameter(f"PHASE: expected one of {', '.join(phases)}, got '{phase}'")
    config = load_config(sets=sets or ())
    shape = shape_of(config)
    lines = plan_lines(phases[phase](shape), learn.sizes(shape, config.lot_limit or LOT_LIMIT))
    terminal = Terminal()
    if json:
        terminal.json([vars(line) for line in lines])
        return
    for part in fold(lines):
        _show_part(part, brief, terminal)
    kinds = {kind: sum(line.kind == kind for line in lines) for kind in ("kernel", "product", "zero")}
    counted = f"{kinds['kernel']:,} kernels, {kinds['product']:,} matrix products, {kinds['zero']:,} zero fills"
    terminal.show(f"\n{len(lines):,} steps an iteration of {config.batch} rows x {config.rollout}: {counted}")


def kernels(
    words: Words = None,
    arch: Annotated[str, typer.Option("--arch", help="GPU architecture to compile for, e.g. sm_80.")] = "sm_90",
    static: Annotated[
        bool, typer.Option("--static", help="Compile nothing: signatures and launch rules only.")
    ] = False,
    json: JSON = False,
) -> None:
    """List the kernels with what they take of a GPU.

    Registers, shared memory, stack, spills and block size. Compiles with NVRTC, which needs no GPU; the first time
    takes a minute, later calls read the cache.

    \b
    Examples:
      foxhunt diag kernels --static
      foxhunt diag kernels lobsim --arch sm_86
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.kernels.registry import gpu_kernels
    from foxhunt_cli.kernels.registry import kernels as registry

    every = [*registry().values(), *gpu_kernels().values()]
    chosen = [contract for contract in every if _named(f"{contract.name} {contract.file.name}", words)]
    if not chosen:
        raise typer.BadParameter(
            f"no kernel contains {' or '.join(map(repr, words or ()))}; 'foxhunt diag kernels' lists all"
        )
    terminal = Terminal()
    taken = {} if static else _resources(chosen, arch)
    if json:
        terminal.json({"arch": None if static else arch, "kernels": [_document(c, taken.get(c.name)) for c in chosen]})
        return
    if static:
        terminal.show(_static_table(chosen))
        return
    terminal.show(_resource_table(chosen, taken))
    terminal.show(f"on {arch}: registers a thread; bytes of static shared memory (+ and dynamic), stack, spills")


def _named(text: str, words: list[str] | None) -> bool:
    return not words or any(word.lower() in text.lower() for word in words)


def _show_slot(slot: Slot, foxhunt_seed: float, other_seed: float, terminal: Terminal) -> None:
    from rich.padding import Padding
    from rich.text import Text

    seed = f"seed {foxhunt_seed:g}" + (f" (preset seed {other_seed:g})" if other_seed != foxhunt_seed else "")
    unit = "" if slot.unit == "1" else f" {slot.unit}"
    settable = f"{seed}, {slot.lower:g} .. {slot.upper:g}{unit}" if slot.kind in ("tunable", "control") else slot.unit
    terminal.show(Text.assemble(f"{slot.number}  ", (slot.name, "bold"), f"  {slot.kind}  {settable}"))
    owner = f"; written by {slot.owner}" if slot.owner else ""
    terminal.show(Padding(Text(f"{slot.meaning}{owner}; {slot.field}", style="dim"), (0, 0, 0, 5)))


def _show_part(part: Part, brief: bool, terminal: Terminal) -> None:
    if part.times > 1:
        terminal.show(f"-- {part.times} times:")
    if brief:
        terminal.show(_plan_table(part))
        return
    for line in part.lines:
        _show_line(line, terminal)


def _plan_table(part: Part) -> Table:
    from foxhunt_cli.cli.tables import plain_table

    table = plain_table("#", "step", "grid", "block", left=("step",))
    for line in part.lines:
        table.add_row(str(line.index), line.step, line.grid, line.block)
    return table


def _show_line(line: PlanLine, terminal: Terminal) -> None:
    from rich.padding import Padding
    from rich.text import Text

    shape = {
        "kernel": f"grid {line.grid}, block {line.block}",
        "product": f"matrix product {line.grid}",
        "zero": "zero fill",
    }
    terminal.show(Text.assemble(f"{line.index:>4}  ", (line.step, "bold"), f"  {shape[line.kind]}"))
    for label, names in (("reads ", line.reads), ("writes", line.writes)):
        if names:
            terminal.show(Padding(Text(f"{label} {', '.join(names)}", style="dim"), (0, 0, 0, 6)))


def _resources(chosen: list[KernelContract], arch: str) -> dict[str, Resources]:
    from foxhunt_cli.device.nvrtc import CompileTask, supported_archs
    from foxhunt_cli.device.resources import resources
    from foxhunt_cli.kernels.registry import cuda_root

    known = [f"sm_{number}" for number in supported_archs()]
    if arch not in known:
        raise typer.BadParameter(f"--arch: expected one of {', '.join(known)}, got '{arch}'")
    root = cuda_root()
    files = dict.fromkeys(contract.file for contract in chosen)
    return resources([CompileTask(file, arch, (root, file.parent)) for file in files])


def _resource_table(chosen: list[KernelContract], taken: dict[str, Resources]) -> Table:
    from foxhunt_cli.cli.tables import plain_table

    table = plain_table("kernel", "registers", "shared", "stack", "spills", "block", left=("kernel",))
    for contract in chosen:
        row = taken[contract.name]
        spills = row.spill_store_bytes + row.spill_load_bytes
        dynamic = "" if contract.launch.shared == "0" else "+"
        shared = f"{row.shared_bytes:,}{dynamic}"
        table.add_row(
            contract.name, str(row.registers), shared, f"{row.stack_bytes:,}", f"{spills:,}", contract.launch.block
        )
    return table


def _static_table(chosen: list[KernelContract]) -> Table:
    from foxhunt_cli.cli.tables import plain_table

    table = plain_table("kernel", "launch", left=("kernel", "launch"))
    for contract in chosen:
        table.add_row(contract.name, _rule(contract))
    return table


def _rule(contract: KernelContract) -> str:
    rule = contract.launch
    shared = "" if rule.shared == "0" else f", shared {rule.shared}"
    return f"{rule.mode} {rule.items}, block {rule.block}{shared}"


def _document(contract: KernelContract, taken: Resources | None) -> dict[str, Any]:
    return {
        "kernel": contract.name,
        "file": contract.file.name,
        "line": contract.line,
        "summary": contract.summary,
        "launch": vars(contract.launch),
        "reads": contract.reads,
        "writes": contract.writes,
        **({} if taken is None else {name: value for name, value in vars(taken).items() if name != "kernel"}),
    }
