"""Oracles of PopArt: outputs stay, moments move."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.nets import popart
from foxhunt_cli.nets.target import BUFFERS as SHARED
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.head_rig import HeadRig, isv_values
from foxhunt_cli.pipeline.stage import Stage
from foxhunt_cli.pipeline.tables import buffers

_T, _B, _P = 4, 8, 9


def _rig(trial: Trial, returns: np.ndarray, **changed) -> HeadRig:
    rng = np.random.default_rng(6)
    inputs = {
        "isv": isv_values(**{"popart_beta": 0.3, **changed}),
        "value_target": returns,
        "advantage": np.zeros((_T, _B)),
        "overridden": np.zeros((_T, _B), np.uint8),
        "w_v": rng.standard_normal((128, _P)),
        "b_v": rng.standard_normal(_P),
        "w_v_ctx": rng.standard_normal((3, _P)),
        "h": rng.standard_normal((64, 128)),
        "context": rng.standard_normal((64, 3)),
    }
    sizes = {"T": _T, "B": _B, "P": _P, "N_TARGET_CHUNKS": 1, "mask_overridden": 0}
    return HeadRig(trial, (), (*SHARED, buffers()["adv_moments"]), sizes, inputs)


# What measures the returns, then what follows them.
_UPDATE = (Stage("rl_advantage_statistics", {"moments": "adv_moments"}), *popart.update())


def _values(rig: HeadRig) -> np.ndarray:
    """Unnormalised values of 64 random encodings at every class."""
    raw = rig.get("h") @ rig.get("w_v") + rig.get("b_v") + rig.get("context") @ rig.get("w_v_ctx")
    mean, second = rig.slot("POPART_MEAN"), rig.slot("POPART_SECOND_MOMENT")
    return np.sqrt(max(second - mean**2, 1e-8)) * raw + mean


@oracle("popart")
def popart_preserves_outputs(trial: Trial) -> None:
    """Twenty updates by wild returns: the values of every class, context term included, stay what they were."""
    rng = np.random.default_rng(2)
    rig = _rig(trial, rng.standard_normal((_T, _B)))
    before = _values(rig)
    for scale in np.geomspace(0.1, 30.0, 20):
        rig.set("value_target", scale * rng.standard_normal((_T, _B)) + 2.0 * scale)
        rig.run(_UPDATE)
    after = _values(rig)
    moved = abs(rig.slot("POPART_MEAN"))
    trial.true("the moments moved far", moved > 10.0, moved)
    # float32: twenty roundings of a value of the moments' size.
    trial.close("values", before, after, 1e-9 if rig.double else 2e-5 * np.sqrt(rig.slot("POPART_SECOND_MOMENT")))


@oracle("popart")
def popart_moments_are_an_ema(trial: Trial) -> None:
    """Mean and second moment move by beta towards the batch's; there is no first-observation rule."""
    returns = np.random.default_rng(3).standard_normal((_T, _B)) + 3.0
    rig = _rig(trial, returns, popart_beta=0.01)
    rig.run(_UPDATE)
    trial.close("mean", 0.01 * returns.mean(), rig.slot("POPART_MEAN"), 1e-6)
    trial.close("second moment", 0.99 + 0.01 * (returns**2).mean(), rig.slot("POPART_SECOND_MOMENT"), 1e-6)


@oracle("popart")
def popart_constant_returns_keep_a_floor(trial: Trial) -> None:
    """Returns without spread: sigma stays at its floor, weights stay finite and outputs stay."""
    rig = _rig(trial, np.full((_T, _B), 0.7), popart_beta=1.0)
    before = _values(rig)
    rig.run(_UPDATE)
    trial.true("weights are finite", np.isfinite(rig.get("w_v")).all() and np.isfinite(rig.get("b_v")).all())
    mean, second = rig.slot("POPART_MEAN"), rig.slot("POPART_SECOND_MOMENT")
    trial.close("mean", 0.7, mean, 1e-6)
    variance = second - mean**2
    floor = np.sqrt(variance) if variance > 1e-8 else 1e-4
    raw = rig.get("h") @ rig.get("w_v") + rig.get("b_v") + rig.get("context") @ rig.get("w_v_ctx")
    # The weights grew by 1 / floor: float32 keeps seven digits of the outputs' size.
    trial.close("values", before, floor * raw + mean, 1e-3)


@oracle("popart")
def popart_refuses_bad_returns(trial: Trial) -> None:
    """A return that is not finite changes nothing and is counted."""
    returns = np.ones((_T, _B))
    returns[1, 2], returns[2, 3] = np.nan, np.inf
    rig = _rig(trial, returns)
    before = {name: rig.get(name) for name in ("w_v", "b_v", "w_v_ctx", "isv")}
    rig.run(_UPDATE)
    for name, value in before.items():
        trial.equal(name, value, rig.get(name))
    trial.equal("counted", 2, rig.get("nonfinite_parts")[6])
