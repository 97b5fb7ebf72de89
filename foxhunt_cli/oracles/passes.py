"""How many passes over the on-policy rows slot ROLLOUT_STEPS stands for."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.isv.table import ISV_SIZE, number
from foxhunt_cli.oracles.base import Trial, oracle

# Slot value -> passes: whole units of 2,048, halves up, at least one, at most four.
_PASSES = {2048.0: 1, 3071.0: 1, 3072.0: 2, 4096.0: 2, 5119.0: 2, 5120.0: 3, 7168.0: 4, 8192.0: 4, 0.0: 1, 1e9: 4}


@oracle("controllers")
def passes_round_the_slot(trial: Trial) -> None:
    """Each flag stands for one pass; a slot that is not finite gives the first pass alone."""
    for steps, passes in {**_PASSES, float("nan"): 1, float("inf"): 1}.items():
        isv = np.zeros(ISV_SIZE, np.float32)
        isv[number("ROLLOUT_STEPS")] = steps
        flags = {f"pass_{n}": np.full(1, 7, np.int32) for n in (2, 3, 4)}
        got = trial.run("rl_open_passes", {"isv": isv, **flags})
        wanted = [int(passes >= n) for n in (2, 3, 4)]
        trial.equal(f"slot {steps:g}", np.array(wanted), np.concatenate([got[name] for name in flags]))
