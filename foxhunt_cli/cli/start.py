"""The way in: catches Ctrl-C from the first moment on.

Imports next to nothing on its own: loading the commands takes a tenth of a second, and an interrupt in it must end like
any other, in one line and with status 130.
"""

from __future__ import annotations

import os
import sys

from foxhunt_cli.cli import streams

INTERRUPTED = 130


def main() -> None:
    """Entry point of ``foxhunt`` and of ``python -m foxhunt_cli.cli``."""
    streams.make_usable()
    try:
        from foxhunt_cli.cli.app import main as run
    except KeyboardInterrupt:
        streams.say("error: interrupted")
        _leave()
    try:
        run()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            _leave()
        raise


def _leave() -> None:
    """Exit status 130 and nothing else.

    Python ends by the signal instead where an interrupt met code that was compiled from a string (dataclasses are),
    although it was caught.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the reader has gone
            continue
    os._exit(INTERRUPTED)
