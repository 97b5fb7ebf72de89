"""SIGINT and SIGTERM while training: the first asks the loop to stop, a second interrupt leaves at once."""

from __future__ import annotations

import signal
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any


class StopRequest(AbstractContextManager["StopRequest"]):
    """Inside the context, ``requested`` turns true at the first signal; ``exit_status`` is 0, 130 or 143."""

    def __init__(self) -> None:
        self.requested = False
        self.exit_status = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
        self.exit_status = 128 + number
