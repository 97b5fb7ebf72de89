"""Scratch of kernels whose blocks leave sums to the last of them, and their counters of blocks.

Each kernel has its own: launches that need nothing of each other may run side by side.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer


def _parts(name: str, columns: int, blocks: str, meaning: str) -> Buffer:
    return Buffer(f"parts_{name}", f"{columns}, {blocks}", "float32", "data", "mixed", meaning)


def _done(name: str, kernel: str) -> Buffer:
    return Buffer(
        f"{name}_done", "1", "uint32", "data", "blocks", f"blocks of {kernel} that are done; 0 between launches"
    )


ROWS = (
    _parts("advantages", 7, "(B+7)//8", "sums over eight rows, of rl_policy_advantages"),
    _parts("losses", 3, "(T*B+127)//128", "sums over 128 rows, of rl_policy_surrogate"),
    _parts("reward", 57, "(T*B+511)//512", "sums and maxima over 512 rows, of rl_rollout_end"),
    _parts("end", 5, "(T*B+127)//128", "sums and maxima over 128 rows, of rl_iteration_end"),
    _done("advantages", "rl_policy_advantages"),
    _done("losses", "rl_policy_surrogate"),
    _done("rollout", "rl_rollout_end"),
    _done("end", "rl_iteration_end"),
    _done("slots", "rl_store_slots"),
    _done("candidates", "rl_store_candidates"),
    _done("tree", "rl_store_tree"),
)
