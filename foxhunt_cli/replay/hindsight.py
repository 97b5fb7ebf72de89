"""Steps of bidirectional hindsight: watching trades, judging closed ones, adding transitions to the replay.

``track(t)`` belongs to environment step ``t``, behind the account; ``inject()`` behind ``per.push()`` and before
``per.tree_of_pushed()``. The label is slot HINDSIGHT_LABEL; a run without hindsight has none of these steps.
"""

from __future__ import annotations

from foxhunt_cli.pipeline.stage import Stage, Step, at

LABELS = {"close": 0, "peak": 1, "path": 2}
"""``--hindsight`` to slot HINDSIGHT_LABEL; "none" has no steps."""


def track(t: int) -> list[Step]:
    """Mids, peak and records of environment step ``t``, on the book behind its fill."""
    return [Stage("rl_hindsight_track", at(t))]


def track_all() -> list[Step]:
    """``track`` of every step of the iteration, behind the last of them, in one kernel."""
    return [Stage("rl_rollout_track")]


def inject(directions: str = "both", features: str = "target_h") -> list[Step]:
    """Backward and forward candidates of the iteration, their slots, their copies, what is kept for later."""
    if directions == "off":
        return []
    backward, forward = (str(int(directions in ("both", one))) for one in ("backward", "forward"))
    return [
        Stage("rl_hindsight_note"),
        Stage("rl_hindsight_peak", {"enabled": backward}),
        Stage("rl_hindsight_forward", {"enabled": forward}),
        Stage("rl_hindsight_inject"),
        Stage("rl_hindsight_copy", {"h": features}),
        Stage("rl_hindsight_keep", {"h": features}),
    ]


def inject_at_once(directions: str = "both", features: str = "target_h") -> list[Step]:
    """``inject`` in two kernels; directions other than "off"."""
    enabled = {one: str(int(directions in ("both", one))) for one in ("backward", "forward")}
    judged = Stage("rl_store_candidates", enabled | {"blocks_done": "candidates_done"})
    return [judged, Stage("rl_store_injections", {"h": features})]
