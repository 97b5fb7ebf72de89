"""Numbers that the replay's kernels and the host share (``cuda_src/replay``, ``cuda_src/hindsight``)."""

from __future__ import annotations

N_STEP_MAX = 32
"""Longest n-step window."""
TREE_BAND = 5
"""Levels of the sum tree that one thread renews."""

# Elements of buffer replay_state.
HEAD, SIZE, SYNTHETIC, START, PUSHED, CLOCK, INJECTED = range(7)

REAL, BACKWARD, FORWARD = range(3)
"""Values of store_source."""
