"""``foxhunt init``: the two files that a run can be configured with, every key in them, commented."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

RUN_HEAD = """\
# Configuration of a run. Use it with: foxhunt train --config {name}
# A line counts once its leading '# ' is gone. The values are the defaults.

"""


def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where to write them.")] = Path("."),
) -> None:
    """Write run.toml and isv.toml, every key explained.

    Never overwrites. As written they change nothing; take the '# ' from the lines you want to change.

    \b
    Examples:
      foxhunt init settings
      foxhunt train --config settings/run.toml --seeds settings/isv.toml --steps 2000
    """
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.diag.writer import FileError, write_file
    from foxhunt_cli.isv.template import render

    files = {folder / "run.toml": _run_toml(), folder / "isv.toml": render()}
    for path in files:
        if path.exists():
            raise FileError(f"{path}: exists and is left as it is; give another folder or remove it")
    for path, text in files.items():
        write_file(path, text.encode())
    terminal = Terminal()
    for path in files:
        terminal.show(str(path))
    run, seeds = (shlex.quote(str(path)) for path in files)
    terminal.note(f"edit them, then: foxhunt train --config {run} --seeds {seeds}")


def _run_toml() -> str:
    """Every field with its description; assignments commented out, so that later defaults still apply."""
    from foxhunt_cli.config.load import dump_toml
    from foxhunt_cli.config.run import RunConfig

    lines = dump_toml(RunConfig()).splitlines()
    commented = (line if line.startswith(("#", "[")) or not line else f"# {line}" for line in lines)
    return RUN_HEAD.format(name="run.toml") + "\n".join(commented) + "\n"
