"""Oracles of the spectral cap: against numpy's singular values."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.nets import spectral
from foxhunt_cli.nets.policy import PARAMETERS as POLICY
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.head_rig import HeadRig, isv_values

_DIMS = {"P": 3, "N_ACTIONS": 11}
_PI = [row for row in spectral.BUFFERS if "_pi_" in row.name]


def _rig(trial: Trial, weights: np.ndarray, cap: float) -> HeadRig:
    w_pi = [tensor for tensor in POLICY if tensor.name == "w_pi"]
    return HeadRig(trial, w_pi, _PI, _DIMS, {"w_pi": weights, "isv": isv_values(spectral_cap=cap)})


def _weights(largest: float) -> np.ndarray:
    """[128, 33] with singular values from ``largest`` down to a tenth of it, the second 0.6 of the first."""
    rng = np.random.default_rng(3)
    u, v = (np.linalg.qr(rng.standard_normal((n, 33)))[0] for n in (128, 33))
    values = largest * np.concatenate([[1.0], np.linspace(0.6, 0.1, 32)])
    return (u * values) @ v.T


@oracle("spectral")
def spectral_norm_converges_to_the_largest_singular_value(trial: Trial) -> None:
    """From a zero start, one iteration a call: never above, after twenty equal; below the cap nothing changes."""
    weights = _weights(4.0)
    rig = _rig(trial, weights, cap=10.0)
    start = rig.get("w_pi")
    largest = np.linalg.svd(start, compute_uv=False)[0]
    for _ in range(20):
        rig.run(spectral.cap("pi"))
        trial.true(
            "estimate from below", rig.slot("SPECTRAL_PI_NORM") <= largest * (1.0 + 1e-5), rig.slot("SPECTRAL_PI_NORM")
        )
    trial.close("largest singular value", largest, rig.slot("SPECTRAL_PI_NORM"), 1e-4)
    trial.equal("weights untouched below the cap", start, rig.get("w_pi"))


@oracle("spectral")
def spectral_cap_bounds_the_weights(trial: Trial) -> None:
    """Above the cap W is scaled as a whole, by cap / sigma, and ends at the cap."""
    rig = _rig(trial, _weights(4.0), cap=1.5)
    start = rig.get("w_pi")
    for _ in range(30):
        rig.run(spectral.cap("pi"))
    capped = rig.get("w_pi")
    trial.close("largest singular value", 1.5, np.linalg.svd(capped, compute_uv=False)[0], 1e-4)
    trial.close("direction kept", start / np.linalg.norm(start), capped / np.linalg.norm(capped), 1e-6)


@oracle("spectral")
def spectral_zero_weights_stay(trial: Trial) -> None:
    """W = 0: norm 0, nothing divided by zero."""
    rig = _rig(trial, np.zeros((128, 33)), cap=1.5)
    for _ in range(3):
        rig.run(spectral.cap("pi"))
    trial.equal("norm", 0.0, rig.slot("SPECTRAL_PI_NORM"))
    trial.equal("weights", 0.0, rig.get("w_pi"))
