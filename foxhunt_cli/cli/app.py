"""The ``foxhunt`` command: the table of commands, global options and the way out.

Commands live in modules of their own, which import what they need when they run: ``foxhunt --help`` loads typer
alone.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from typer.core import TyperGroup

from foxhunt_cli import __version__
from foxhunt_cli.cli.bench import bench_app
from foxhunt_cli.cli.data import data_app
from foxhunt_cli.cli.diag import diag_app
from foxhunt_cli.cli.doctor import doctor
from foxhunt_cli.cli.errors import Interrupted, ReaderLeft, device_is_lost, report
from foxhunt_cli.cli.eval import evaluate
from foxhunt_cli.cli.init import init
from foxhunt_cli.cli.oracle import oracle
from foxhunt_cli.cli.smoke import smoke
from foxhunt_cli.cli.sweep import sweep
from foxhunt_cli.cli.train import train


class Outermost(TyperGroup):
    """Where a command's end is still an exception: typer would turn these two into a silent 130, and a failed check."""

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error
        except BrokenPipeError as error:
            raise ReaderLeft from error


HELP = {"help_option_names": ["-h", "--help"]}  # commands take it over from here
app = typer.Typer(
    name="foxhunt",
    cls=Outermost,
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    context_settings=HELP,
)
app.command("train")(train)
app.command("sweep")(sweep)
app.command("eval")(evaluate)
app.add_typer(data_app, name="data")
app.add_typer(diag_app, name="diag")
app.command("smoke")(smoke)
app.command("oracle")(oracle)
app.add_typer(bench_app, name="bench")
app.command("doctor")(doctor)
app.command("init")(init)


def _print_version(wanted: bool) -> None:
    if wanted:
        from foxhunt_cli.cli.machine import first_device
        from foxhunt_cli.isv.table import layout_hash
        from foxhunt_cli.train.run_dir import kernel_hash

        print(f"foxhunt {__version__}, kernels {kernel_hash()}, slots {layout_hash()}, device {first_device()}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Version, hashes of kernels and slots, device.",
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks. Accepted anywhere on the line.")] = False,
) -> None:
    """Train a trading agent on limit-order-book data, on a GPU or a CPU.

    \b
    Examples:
      foxhunt train --steps 2000
      foxhunt doctor
    """


def main(argv: list[str] | None = None) -> None:
    """Entry point: runs the command line and exits with the status of cli/errors.py."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    try:
        status = app(arguments, prog_name="foxhunt", standalone_mode=False)
        sys.stdout.flush()
    except (Exception, KeyboardInterrupt) as error:
        status = report(error, debug)
        if device_is_lost(error):  # whatever frees GPU memory on the way out would fail, and say so
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    sys.exit(status if isinstance(status, int) else 0)
