"""``foxhunt data``: look at, check, convert and make market data."""

from __future__ import annotations

import typer

data_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Look at, check, convert and make market data.")


@data_app.callback()
def data() -> None:
    """Look at, check, convert and make market data."""
