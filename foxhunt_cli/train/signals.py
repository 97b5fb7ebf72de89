"""SIGINT, SIGTERM and SIGHUP of a run: the first asks the loop to stop, a second interrupt leaves at once.

While a run starts there is nothing to save: a signal leaves at once. It is remembered too, since libraries that are
being loaded may swallow the exception. From ``begin()`` on the run has files: a signal then waits until they are whole,
and the loop stops before its next iteration.
"""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any


class StopRequest(AbstractContextManager["StopRequest"]):
    """Inside the context, ``requested`` turns true at the first signal; ``exit_status`` is 0, 129, 130 or 143.

    ``begin()`` says that the run has files from now on.
    """

    def __init__(self) -> None:
        self.requested = False
        self._starting = True
        self.exit_status = 0
        self._before: dict[int, Any] = {}

    def begin(self) -> None:
        """Signals no longer leave at once; one that a library swallowed before does so here."""
        self._starting = False
        if self.exit_status == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if self.exit_status:
            raise SystemExit(self.exit_status)

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is not threading.main_thread():
            return self  # only the main thread may have handlers; the program that called decides there
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # under nohup a terminal may close, and the run goes on
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        again, self.requested = self.requested, True
        self.exit_status = self.exit_status or 128 + number
        if number == signal.SIGINT and (again or self._starting):
            raise KeyboardInterrupt
        if self._starting:
            raise SystemExit(self.exit_status)
