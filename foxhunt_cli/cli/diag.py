"""``foxhunt diag``: the table of its commands. Each lives in a module beside this one."""

from __future__ import annotations

import typer

from foxhunt_cli.cli.diag_files import export, plot
from foxhunt_cli.cli.diag_live import tail
from foxhunt_cli.cli.diag_run import check, compare, summarize
from foxhunt_cli.cli.diag_tables import kernels, pipeline, slots

diag_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@diag_app.callback()
def diag() -> None:
    """Read runs, and the program's own tables.

    \b
    Examples:
      foxhunt diag summarize runs/demo
      foxhunt diag slots --kind tunable
    """


diag_app.command("summarize")(summarize)
diag_app.command("check")(check)
diag_app.command("compare")(compare)
diag_app.command("tail")(tail)
diag_app.command("plot")(plot)
diag_app.command("export")(export)
diag_app.command("slots")(slots)
diag_app.command("pipeline")(pipeline)
diag_app.command("kernels")(kernels)
