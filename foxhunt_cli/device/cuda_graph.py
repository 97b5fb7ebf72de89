"""A recorded list of operations on a GPU: eager on one stream in list order, or replayed as a captured graph.

Owns streams, events and graphs of a plan; they do not leave this module. The graph is captured once, on as many streams
as the schedule has branches: a branch begins with an event of the first one, waits for what its operations need from
other branches, and is joined at the end. Which branch an operation is on changes no result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foxhunt_cli.device.branches import Schedule
from foxhunt_cli.device.cuda_errors import explained

if TYPE_CHECKING:
    from foxhunt_cli.device.cuda import CudaDevice


@dataclass(frozen=True)
class Enqueued:
    """One launch or memory operation, everything resolved; ``enqueue`` puts it on the given stream, the current one."""

    label: str
    enqueue: Callable[[Any], None]
    keep_alive: tuple[Any, ...] = ()


class CudaPlan:
    """A recorded list of operations. The first ``run`` is eager and records the graph that later ones replay."""

    def __init__(self, device: CudaDevice, operations: Sequence[Sequence[Enqueued]], schedule: Schedule | None):
        """operations: of each, what it puts on a stream, in order. schedule: of the graph; None: there is none."""
        self._device = device
        self._operations = tuple(map(tuple, operations))
        self.schedule = schedule if any(self._operations) else None
        self._graph: Any = None

    def run(self) -> None:
        """Enqueues the whole list; does not wait."""
        if self._graph is not None:
            with explained("replaying a graph"):
                self._graph.launch(self._device.stream)
            return
        self.run_eager()
        if self.schedule is not None:
            with self._device.active("capturing a graph"):
                self._graph = _capture(self._device.stream, self._operations, self.schedule)

    def run_eager(self) -> None:
        """The same list, one operation at a time."""
        stream = self._device.stream
        with self._device.active("running a plan"):
            for steps in self._operations:
                for step in steps:
                    step.enqueue(stream)


def _capture(origin: Any, operations: Sequence[Sequence[Enqueued]], schedule: Schedule) -> Any:
    """The graph of all operations, captured from ``origin``, the stream of branch 0."""
    streams = [origin, *(type(origin)(non_blocking=True) for _ in range(1, schedule.branches))]
    origin.begin_capture()
    try:
        _fork(origin, operations, schedule, streams)
    finally:
        # Also after a failure: a stream left capturing would refuse everything that follows.
        graph = origin.end_capture()
    graph.upload(origin)
    return graph


def _fork(origin: Any, operations: Sequence[Sequence[Enqueued]], schedule: Schedule, streams: Sequence[Any]) -> None:
    started = origin.record()
    begun = {0}
    heard = {(need, schedule.branch[index]) for index, needs in enumerate(schedule.before) for need in needs}
    events: dict[int, Any] = {}
    for index in schedule.order:
        own = schedule.branch[index]
        stream = streams[own]
        if own not in begun:
            stream.wait_event(started)
            begun.add(own)
        for need in schedule.before[index]:
            if schedule.branch[need] != own:
                stream.wait_event(events[need])
        with stream:
            for step in operations[index]:
                step.enqueue(stream)
        if any((index, other) in heard for other in range(len(streams)) if other != own):
            events[index] = stream.record()
    for own in sorted(begun - {0}):
        origin.wait_event(streams[own].record())
