"""The way in: catches Ctrl-C from the first moment on.

Imports nothing but ``sys`` on its own: loading the commands takes a tenth of a second, and an interrupt in it must end
like any other, in one line and with status 130.
"""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Entry point of ``foxhunt`` and of ``python -m foxhunt_cli.cli``."""
    try:
        from foxhunt_cli.cli.app import main as run
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    run()
