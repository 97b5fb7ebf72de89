"""Oracles of the atoms and of the projection of targets on them: mass, mean, ends, terminal rows, odd spans."""

from __future__ import annotations

import numpy as np

from foxhunt_cli.nets import c51
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.formulas import softmax
from foxhunt_cli.oracles.head_rig import isv_values

Z = c51.ATOMS
MASS = 1e-6  # the specification's bound on lost or gained probability


def reference_projection(prob: np.ndarray, reward: float, keep: float, low: float, high: float) -> np.ndarray:
    """Mass of reward + keep z split linearly on the atoms, float64, one source atom after the other."""
    out, width = np.zeros(Z), (high - low) / (Z - 1)
    for p, z in zip(prob, np.linspace(low, high, Z), strict=True):
        place = (np.clip(reward + keep * z, low, high) - low) / width if high > low else 0.0
        below = min(int(np.floor(place)), Z - 2)
        out[below] += p * (below + 1 - place)
        out[below + 1] += p * (place - below)
    return out


def project(trial: Trial, prob, reward, keep, low: float, high: float, terminal: int = 0) -> dict[str, np.ndarray]:
    """bellman_target_projection on one distribution a row (one position class)."""
    prob = np.asarray(prob, np.float32).reshape(-1, 1, Z)
    rows = len(prob)
    return trial.run(
        "bellman_target_projection",
        {
            "next_prob": prob,
            "replay_next_lots": np.zeros(rows, np.int8),
            "replay_reward": np.resize(np.asarray(reward, np.float32), rows),
            "replay_discount": np.resize(np.asarray(keep, np.float32), rows),
            "replay_terminal": np.full(rows, terminal, np.uint8),
            "isv": isv_values(c51_v_min=low, c51_v_max=high),
            "c51_target": np.zeros((rows, Z), np.float32),
            "row_target": np.zeros(rows, np.float32),
            "row_clipped": np.zeros(rows, np.float32),
        },
        rows=rows,
        P=1,
    )


def _random_prob(rows: int, seed: int = 4) -> np.ndarray:
    return softmax(2.0 * np.random.default_rng(seed).standard_normal((rows, Z)))


@oracle("c51")
def c51_atoms_span_the_slots(trial: Trial) -> None:
    """linspace(V_MIN, V_MAX), ends exact."""
    for low, high in ((-1.0, 1.0), (-3.7, 11.3), (2.0, 2.0)):
        isv = isv_values(c51_v_min=low, c51_v_max=high)
        atoms = trial.run("rl_atom_support_update", {"isv": isv, "c51_atoms": np.zeros(Z, np.float32)})["c51_atoms"]
        trial.close(f"atoms {low}..{high}", np.linspace(low, high, Z), atoms, 1e-6)
        trial.equal("ends", np.array([low, high], np.float32), atoms[[0, -1]].astype(np.float32))


@oracle("c51")
def c51_projection_conserves_mass(trial: Trial) -> None:
    """500 random targets in six spans: mass 1, nothing negative, and equal to the reference."""
    rng = np.random.default_rng(2)
    for low, high in ((-1.0, 1.0), (-20.0, 20.0), (-0.01, 0.02), (-1e3, 1e3), (3.0, 9.0), (-1e-4, 1e4)):
        prob = _random_prob(500).astype(np.float32)
        reward = rng.normal(0.0, 0.7 * (high - low), 500).astype(np.float32)
        keep = rng.choice([0.0, 0.3, 0.7, 0.97, 0.999, 1.0], 500).astype(np.float32)
        target = project(trial, prob, reward, keep, low, high)["c51_target"]
        trial.close(
            f"mass, span {low}..{high}", prob.astype(np.float64).sum(-1), target.astype(np.float64).sum(-1), MASS
        )
        trial.true("no negative mass", (target >= 0.0).all())
        if low > -1e-3:  # the reward's own rounding is many atoms wide in the narrow and the lopsided span
            continue
        want = np.array([reference_projection(*args, low, high) for args in zip(prob, reward, keep, strict=True)])
        trial.close(f"reference, span {low}..{high}", want, target, 2e-5)


@oracle("c51")
def c51_projection_keeps_the_mean_inside_the_span(trial: Trial) -> None:
    """Nothing clipped: the mean is r + gamma mean, and the share clipped is 0."""
    prob = _random_prob(64)
    reward, keep, atoms = np.linspace(-0.5, 0.5, 64).astype(np.float32), np.float32(0.4), np.linspace(-1.0, 1.0, Z)
    got = project(trial, prob, reward, keep, -1.0, 1.0)
    want = reward + keep * (prob @ atoms)
    trial.close("mean of the projection", want, got["c51_target"] @ atoms, 2e-6)
    trial.close("row_target", want, got["row_target"], 2e-6)
    trial.equal("clipped", 0.0, got["row_clipped"])


@oracle("c51")
def c51_projection_collects_at_the_ends(trial: Trial) -> None:
    """Targets beyond the span go to the end atoms, whole, and count as clipped."""
    prob = _random_prob(2)
    got = project(trial, prob, [50.0, -50.0], 0.99, -1.0, 1.0)
    want = np.zeros((2, Z))
    want[0, -1] = want[1, 0] = 1.0
    trial.close("target", want, got["c51_target"], MASS)
    trial.close("clipped", 1.0, got["row_clipped"], MASS)


@oracle("c51")
def c51_projection_terminal_is_the_reward_alone(trial: Trial) -> None:
    """d = 1: all mass at the reward, split between its neighbours; the next distribution has no say."""
    got = project(trial, _random_prob(3), [0.25, -1.0, 0.3], 0.99, -1.0, 1.0, terminal=1)
    want = np.zeros((3, Z))
    want[0, 12] = want[0, 13] = 0.5
    want[1, 0] = 1.0
    want[2, 13] = 1.0
    trial.close("target", want, got["c51_target"], 1e-5)
    trial.close("row_target", [0.25, -1.0, 0.3], got["row_target"], 1e-6)


@oracle("c51")
def c51_projection_on_atoms_and_in_a_point_span(trial: Trial) -> None:
    """A target on an atom keeps mass 1 there; r = 0 and gamma = 1 change nothing; V_MIN = V_MAX keeps mass 1."""
    prob = _random_prob(Z)
    trial.close("identity", prob, project(trial, prob, 0.0, 1.0, -1.0, 1.0)["c51_target"], 1e-6)
    atoms = np.linspace(-1.0, 1.0, Z)
    on_atom = project(trial, prob, atoms, 0.0, -1.0, 1.0)["c51_target"]
    trial.close("every atom", np.eye(Z), on_atom, 2e-6)
    trial.close("mass on every atom", 1.0, on_atom.astype(np.float64).sum(-1), MASS)
    shifted = project(trial, prob, 0.1, 1.0, -1.0, 1.0)["c51_target"]
    want = np.concatenate([np.zeros((Z, 1)), prob[:, :-1]], 1)
    want[:, -1] += prob[:, -1]
    trial.close("shift by one atom", want, shifted, 5e-6)
    point = project(trial, prob, np.linspace(-3, 3, Z), 0.9, 0.5, 0.5)["c51_target"]
    trial.close("V_MIN = V_MAX: mass", 1.0, point.astype(np.float64).sum(-1), MASS)
    still = project(trial, prob, 0.0, 1.0, 0.5, 0.5)["c51_target"]
    trial.close("V_MIN = V_MAX, nothing moves: mass", 1.0, still.astype(np.float64).sum(-1), MASS)
    trial.close("V_MIN = V_MAX: mean", 0.5, point.astype(np.float64) @ np.full(Z, 0.5), MASS)


@oracle("c51")
def c51_projection_wide_span(trial: Trial) -> None:
    """A span far wider than the targets keeps the mean to float32."""
    prob = np.zeros((1, Z))
    prob[0, 10] = 1.0
    got = project(trial, prob, 0.37, 0.99, -1e4, 1e4)["c51_target"].astype(np.float64)
    trial.close("mean", 0.37, got @ np.linspace(-1e4, 1e4, Z), 1e-2)
    trial.close("mass", 1.0, got.sum(), MASS)


@oracle("c51")
def c51_projection_shows_nan(trial: Trial) -> None:
    """A NaN reward or probability is in the target for all to see."""
    prob = _random_prob(2)
    prob[1, 3] = np.nan
    got = project(trial, prob, [np.nan, 0.0], 0.99, -1.0, 1.0)["c51_target"]
    trial.true("NaN in both rows", np.isnan(got).any(-1).all())
