"""How many transitions the replay holds: the default, and what a user may ask for."""

from __future__ import annotations

from foxhunt_cli.replay.constants import N_STEP_MAX

CAPACITY_MIN, CAPACITY_MAX = 1 << 10, 1 << 22


def least_capacity(batch: int, rollout: int) -> int:
    """Slots below which an iteration could write one twice or forget within four iterations.

    4 iterations, and twice what one can push at most (every pending window of every row flushed at once): the other
    half is room for hindsight.
    """
    return max(4 * rollout * batch, 2 * (rollout + N_STEP_MAX) * batch)


def default_capacity(batch: int, rollout: int) -> int:
    """The next power of two at or above 32,768, 128 a row and the least allowed, or the largest. Raises ValueError."""
    wanted = _power_of_two(max(32_768, 128 * batch, least_capacity(batch, rollout)))
    return check_capacity(min(wanted, CAPACITY_MAX), batch, rollout)


def check_capacity(capacity: int, batch: int, rollout: int) -> int:
    """``capacity`` if it can serve B x T; raises ValueError with the limits otherwise."""
    if capacity & (capacity - 1) or not CAPACITY_MIN <= capacity <= CAPACITY_MAX:
        raise ValueError(f"got {capacity:,}, expected a power of two from {CAPACITY_MIN:,} to {CAPACITY_MAX:,}")
    least = least_capacity(batch, rollout)
    if least > CAPACITY_MAX:
        raise ValueError(
            f"batch x rollout = {batch} x {rollout} needs at least {least:,}, the largest replay has {CAPACITY_MAX:,}; "
            "use a smaller --batch or --rollout"
        )
    if capacity < least:
        raise ValueError(
            f"got {capacity:,}, batch x rollout = {batch} x {rollout} needs at least {least:,}; use "
            f"{_power_of_two(least):,} or a smaller batch"
        )
    return capacity


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
