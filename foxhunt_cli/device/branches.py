"""Which operations of a list may run at the same time, and on which of a few branches each runs.

Owns no device: from what each operation reads and writes in memory follow the operations that must be over before it
begins; from these and an estimate of times follows a schedule. An array is the range of bytes from its first element
to its last, so views, aliases and whole vectors meet where they overlap. Of a kernel's arrays those that are const are
read, the others read and written. Of the internal state vector it touches the slots that ``kernels/slots.py`` finds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from foxhunt_cli.device.base import CopyArray, Fill, Launch, Operation, Product, extent
from foxhunt_cli.kernels.slots import WHOLE, touched

LATENCY_US, BYTES_PER_US = 2.5, 1.5e6  # the estimate: what any operation costs, and what its memory adds
CROSSING_US = 1.5  # from the end of an operation to the start of one on another branch


@dataclass(frozen=True)
class Access:
    """Bytes from ``start`` to before ``stop`` that an operation touches."""

    start: int
    stop: int
    write: bool


@dataclass(frozen=True)
class Schedule:
    """``before[i]``: operations that must be over before i begins, none implied by another. ``order``: in which to
    enqueue, each behind all it depends on. ``branch[i]``: where i runs, 0 to ``branches`` - 1. On one branch, where the
    order is that of the list, ``before`` says nothing."""

    before: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    branch: tuple[int, ...]

    @property
    def branches(self) -> int:
        """How many branches are in use."""
        return max(self.branch, default=0) + 1


def schedule(operations: Sequence[Operation], branches: int) -> Schedule:
    """The operations on at most ``branches`` branches. The same list always gives the same schedule."""
    if branches <= 1:
        return Schedule(((),) * len(operations), tuple(range(len(operations))), (0,) * len(operations))
    before = dependencies(operations)
    order, branch = assign(before, [estimate(operation) for operation in operations], branches)
    return Schedule(before, order, branch)


def accesses(operation: Operation) -> list[Access]:
    """What the operation touches; nothing else may decide or feel what it does."""
    found = [] if isinstance(operation, CopyArray) or operation.when is None else [_access(operation.when, write=False)]
    if isinstance(operation, Launch):
        found.extend(_of_launch(operation))
    elif isinstance(operation, Product):
        found += [_access(array, write=False) for array in operation.operands]
        found += [_access(array, write=True) for array in operation.results]
    elif isinstance(operation, Fill):
        found.append(_access(operation.array, write=True))
    else:
        found += [_access(operation.src, write=False), _access(operation.dst, write=True)]
    return found


def dependencies(operations: Sequence[Operation]) -> tuple[tuple[int, ...], ...]:
    """For each operation those before it in the list that must be over first, without what another one implies.

    An operation waits for whoever wrote what it touches, and, where it writes, for whoever read that since.
    """
    touches = [accesses(operation) for operation in operations]
    edges = sorted({edge for own in touches for access in own for edge in (access.start, access.stop)})
    place = {edge: index for index, edge in enumerate(edges)}
    writer: dict[int, int] = {}  # by piece of memory between two neighbouring edges
    readers: dict[int, set[int]] = {}
    implied: list[int] = []  # bit j of element i: i comes behind j
    before: list[tuple[int, ...]] = []
    for index, own in enumerate(touches):
        needs: set[int] = set()
        for access in own:
            for piece in range(place[access.start], place[access.stop]):
                needs.update(() if piece not in writer else (writer[piece],))
                needs.update(readers.get(piece, ()) if access.write else ())
        for access in own:
            for piece in range(place[access.start], place[access.stop]):
                if access.write:
                    writer[piece] = index
                    readers.pop(piece, None)
                else:
                    readers.setdefault(piece, set()).add(index)
        direct, behind = [], 0
        for need in sorted(needs - {index}, reverse=True):  # a later one implies more
            if not behind >> need & 1:
                direct.append(need)
                behind |= implied[need] | 1 << need
        implied.append(behind)
        before.append(tuple(sorted(direct)))
    return tuple(before)


def estimate(operation: Operation) -> float:
    """Microseconds, roughly: it decides who goes first, never what comes out.

    What it touches at a bandwidth, or, if that is more, what of a kernel no bandwidth shortens (``chain`` of its
    contract).
    """
    moved = sum(access.stop - access.start for access in accesses(operation))
    return max(LATENCY_US + moved / BYTES_PER_US, _chain(operation))


def _chain(operation: Operation) -> float:
    if not isinstance(operation, Launch):
        return 0.0
    given = dict(zip((p.name for p in operation.contract.params), operation.args, strict=True))
    return sum(us * (given[name] if name else 1) for us, name in operation.contract.chain)


def assign(
    before: Sequence[Sequence[int]], costs: Sequence[float], branches: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(order, branch of each): list scheduling, the longest way to the end first.

    An operation goes where it can begin soonest, of equals to the lowest number; to wait for another branch takes time.
    """
    after: list[list[int]] = [[] for _ in before]
    for index, needs in enumerate(before):
        for need in needs:
            after[need].append(index)
    way = [0.0] * len(before)
    for index in reversed(range(len(before))):
        way[index] = costs[index] + max((way[next_one] for next_one in after[index]), default=0.0)
    waiting = [len(needs) for needs in before]
    ready = [(-way[index], index) for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    free, ends = [0.0] * branches, [0.0] * len(before)
    branch, order = [0] * len(before), []
    while ready:
        _, index = heapq.heappop(ready)
        starts = [
            max([free[b], *(ends[need] + (CROSSING_US if branch[need] != b else 0.0) for need in before[index])])
            for b in range(branches)
        ]
        chosen = starts.index(min(starts))
        branch[index] = chosen
        free[chosen] = ends[index] = starts[chosen] + costs[index]
        order.append(index)
        for follower in after[index]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, (-way[follower], follower))
    return tuple(order), tuple(branch)


def _of_launch(launch: Launch) -> Iterator[Access]:
    params = launch.contract.params
    given = dict(zip((p.name for p in params), launch.args, strict=True))
    for param in params:
        if not param.pointer:
            continue
        whole = _access(given[param.name], write=not param.const)
        if param.name == "isv":
            yield from _of_vector(launch, given, whole)
        else:
            yield whole


def _of_vector(launch: Launch, given: dict[str, Any], whole: Access) -> Iterator[Access]:
    reads, writes = touched(launch.contract).numbers(given)
    size = (whole.stop - whole.start) // len(WHOLE)
    for slot in reads | writes:
        yield Access(whole.start + slot * size, whole.start + (slot + 1) * size, slot in writes)


def _access(array: Any, *, write: bool) -> Access:
    return Access(*extent(array), write)
