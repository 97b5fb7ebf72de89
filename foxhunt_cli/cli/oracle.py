"""``foxhunt oracle``: proves the kernels on this machine's device, case by case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.oracles.base import Case, CaseResult


def oracle(
    suites: Annotated[list[str] | None, typer.Argument(metavar="SUITE", help="Suites; all if none is named.")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List suites and their cases, run nothing.")] = False,
    case: Annotated[str, typer.Option("--case", help="Only cases whose name contains this text.")] = "",
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")] = "auto",
    precision: Annotated[
        str, typer.Option("--precision", help="Matrix products on CUDA: fp32, or tf32 to see its error.")
    ] = "fp32",
    agree: Annotated[
        bool, typer.Option("--agree", help="Compare every kernel with the CPU device instead of judging it.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of lines.")] = False,
) -> None:
    """Prove the kernels on this machine.

    Oracles are closed forms, invariants and references that the kernels must meet. Each case
    prints what was expected, what came out and the tolerance; a failing one also what its last kernel
    was given. Exit status 1 if any fails.

    \b
    Examples:
      foxhunt oracle --list
      foxhunt oracle --device cpu
    """
    from foxhunt_cli.cli.console import Terminal

    terminal = Terminal()
    chosen = _choose(suites or [], case)
    if list_only:
        _list(chosen, terminal, json)
        return
    if precision not in ("fp32", "tf32"):
        raise typer.BadParameter(f"--precision: expected fp32 or tf32, got '{precision}'")
    if agree:
        _agree(chosen, device, precision, terminal, json)
        return
    results = _run(chosen, device, precision, terminal, json)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


def _choose(wanted: list[str], case: str) -> dict[str, list[Case]]:
    """Cases by suite. Raises typer.BadParameter on a name that is not a suite or matches no case."""
    from difflib import get_close_matches

    from foxhunt_cli.oracles.base import suites

    known = suites()
    names = list(known) if not wanted or wanted == ["all"] else wanted
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            meant = f"did you mean '{close[0]}'? " if close else ""
            raise typer.BadParameter(f"no oracle suite named '{name}'; {meant}known: {', '.join(known)}")
    chosen = {name: [c for c in known[name] if case in c.name] for name in names}
    chosen = {name: cases for name, cases in chosen.items() if cases}
    if not chosen:
        raise typer.BadParameter(f"no case has '{case}' in its name; 'foxhunt oracle --list' shows them")
    return chosen


def _list(chosen: dict[str, list[Case]], terminal: Terminal, json: bool) -> None:
    if json:
        terminal.json({name: [case.name for case in cases] for name, cases in chosen.items()})
        return
    for name, cases in chosen.items():
        terminal.show(f"{name} ({len(cases)})")
        for case in cases:
            terminal.show(f"  {case.name}")


def _run(
    chosen: dict[str, list[Case]], device: str, precision: str, terminal: Terminal, json: bool
) -> list[CaseResult]:
    from foxhunt_cli.device.select import select
    from foxhunt_cli.oracles.base import run_case

    selection = select(device, precision=precision)
    opened = selection.device
    terminal.note(selection.line)
    results = []
    for case in (case for cases in chosen.values() for case in cases):
        results.append(run_case(case, opened))
        if not json:
            _show(results[-1], terminal)
    failed = sum(not result.passed for result in results)
    skipped = sum(bool(result.skipped) for result in results)
    if json:
        terminal.json(
            {
                "device": opened.describe(),
                "failed": failed,
                "skipped": skipped,
                "cases": [_document(r) for r in results],
            }
        )
    else:
        left_out = f", {skipped} skipped" if skipped else ""
        seconds = sum(r.seconds for r in results)
        terminal.show(f"{len(results) - failed - skipped} passed, {failed} failed{left_out} in {seconds:.1f} s")
    return results


def _agree(chosen: dict[str, list[Case]], device: str, precision: str, terminal: Terminal, json: bool) -> None:
    """The table of differences between ``device`` and the CPU device, kernel by kernel."""
    from foxhunt_cli.device.cpu import CpuDevice
    from foxhunt_cli.device.select import select
    from foxhunt_cli.oracles.agreement import Mirror
    from foxhunt_cli.oracles.base import run_case

    selection = select(device, precision=precision)
    terminal.note(f"{selection.line}, compared with the CPU device")
    mirror = Mirror(selection.device, CpuDevice())
    for case in (case for cases in chosen.values() for case in cases):
        run_case(case, mirror)
    scores = [mirror.agreements[name] for name in sorted(mirror.agreements)]
    if json:
        terminal.json({"device": selection.device.describe(), "kernels": [vars(s) for s in scores]})
        return
    heading = f"{'launches':>8} {'values':>10} {'differ':>9} {'max abs':>9} {'relative':>9} integers"
    terminal.show(f"{'kernel':<34} {heading}")
    for s in scores:
        figures = f"{s.launches:>8} {s.values:>10,} {s.bits_differ:>9,} {s.max_abs:>9.2g} {s.max_relative:>9.2g}"
        terminal.show(f"{s.kernel:<34} {figures} {s.integers_differ:>8}")


def _show(result: CaseResult, terminal: Terminal) -> None:
    mark = "skip" if result.skipped else "pass" if result.passed else "FAIL"
    terminal.show(f"{mark}  {result.suite}  {result.name}" + (f": {result.skipped}" if result.skipped else ""))
    for check in result.checks:
        mark = "" if check.ok else "  <- differs"
        tolerance = f"tolerance {check.tolerance:g}" if check.tolerance else "exact"
        terminal.show(f"        {check.label}: expected {check.expected}, got {check.got}, {tolerance}{mark}")
    if result.error:
        terminal.show(f"        the case broke:\n{result.error}")
    if result.inputs:
        terminal.show(f"        inputs of the last kernel: {result.inputs}".replace("\n", "\n        "))


def _document(result: CaseResult) -> dict[str, object]:
    return {**vars(result), "passed": result.passed, "checks": [vars(check) for check in result.checks]}
