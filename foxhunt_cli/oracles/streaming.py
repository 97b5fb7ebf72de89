"""Signals of the learning phase: streaming moments against float64, KL and log-ratio against numpy."""

from __future__ import annotations

import math

import numpy as np

from foxhunt_cli.isv.table import number
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import isv_vector

ALPHA = 0.05
_ROWS = (1, 16, 300)  # one row, fewer rows than threads, more


def _blend(state: float, sample: float) -> float:
    return sample if state == 0.0 else state + ALPHA * (sample - state)


class Stream:
    """The streaming moments in float64: mean, M2, M4 of Welford's squared deviation."""

    def __init__(self) -> None:
        self.mean = self.m2 = self.m4 = 0.0
        self.empty = True

    def add(self, x: np.ndarray) -> None:
        """One iteration's rows."""
        old = float(x.mean()) if self.empty else self.mean
        self.mean = old + (0.0 if self.empty else ALPHA * (float(x.mean()) - old))
        square = (x - old) * (x - self.mean)
        self.m2, self.m4 = _blend(self.m2, square.mean()), _blend(self.m4, (square**2).mean())
        self.empty = False


def _run(trial: Trial, kernel: str, isv: np.ndarray, values: np.ndarray) -> np.ndarray:
    name = "advantage" if kernel.startswith("rl_var") else "td_error"
    return trial.run(kernel, {name: values.astype(np.float32), "isv": isv}, rows=values.size)["isv"]


@oracle("streaming")
def streaming_variance_ratio_matches_float64(trial: Trial) -> None:
    for rows in _ROWS:
        rng, stream, isv = np.random.default_rng(rows), Stream(), isv_vector()
        for _ in range(60):
            x = rng.normal(0.7, 1.5, rows).astype(np.float32)
            isv = _run(trial, "rl_var_over_abs_mean_streaming", isv, x)
            stream.add(x.astype(np.float64))
        trial.close(f"{rows} rows: mean, M2", [stream.mean, stream.m2], isv[442:444], 1e-4)
        trial.close(f"{rows} rows: ratio", stream.m2 / abs(stream.mean), isv[421], 1e-3 * stream.m2 / abs(stream.mean))


@oracle("streaming")
def streaming_variance_is_that_of_all_rows(trial: Trial) -> None:
    """However the same samples are dealt into iterations, a constant distribution has one variance."""
    rng = np.random.default_rng(5)
    for rows, tolerance in ((1, 1.5), (64, 0.3)):
        isv = isv_vector()
        for _ in range(300):
            isv = _run(trial, "rl_var_over_abs_mean_streaming", isv, rng.normal(2.0, 1.5, rows))
        trial.close(f"{rows} rows: variance 2.25", 2.25, isv[443], tolerance)


@oracle("streaming")
def streaming_moments_live_at_one_row(trial: Trial) -> None:
    """B = 1: the first iteration has no spread and no signal; the second has both."""
    isv = _run(trial, "rl_var_over_abs_mean_streaming", isv_vector(), np.array([2.0]))
    trial.equal("mean, no spread, no signal", [2.0, 0.0, 0.0], isv[[442, 443, 421]])
    isv = _run(trial, "rl_var_over_abs_mean_streaming", isv, np.array([4.0]))
    trial.close("2 x 1.9 over 2.1", [2.1, 3.8, 3.8 / 2.1], isv[[442, 443, 421]], 1e-6)
    isv = _run(trial, "rl_kurtosis_streaming", isv_vector(), np.array([2.0]))
    trial.equal("the same for the fourth moment", [2.0, 0.0, 0.0, 0.0], isv[[444, 445, 446, 422]])
    isv = _run(trial, "rl_kurtosis_streaming", isv, np.array([4.0]))
    trial.close("3.8^2 over 3.8^2", [2.1, 3.8, 14.44, 1.0], isv[[444, 445, 446, 422]], 1e-5)


@oracle("streaming")
def streaming_kurtosis_matches_float64(trial: Trial) -> None:
    for rows in _ROWS:
        rng, stream, isv = np.random.default_rng(10 + rows), Stream(), isv_vector(TD_KURTOSIS_CLAMP=1e6)
        for _ in range(60):
            x = rng.standard_t(5, rows).astype(np.float32)
            isv = _run(trial, "rl_kurtosis_streaming", isv, x)
            stream.add(x.astype(np.float64))
        want = [stream.mean, stream.m2, stream.m4]
        trial.close(f"{rows} rows: moments", want, isv[444:447], 1e-4 * (1 + stream.m4))
        kurtosis = stream.m4 / stream.m2**2
        trial.close(f"{rows} rows: kurtosis", kurtosis, isv[422], 1e-3 * kurtosis)


@oracle("streaming")
def streaming_kurtosis_tells_tails_apart(trial: Trial) -> None:
    """Uniform 1.8, normal 3, Laplace 6."""
    rng = np.random.default_rng(6)
    draws = {1.8: rng.uniform, 3.0: rng.normal, 6.0: rng.laplace}
    for kurtosis, draw in draws.items():
        isv = isv_vector()
        for _ in range(150):
            isv = _run(trial, "rl_kurtosis_streaming", isv, draw(-1.0, 1.0, 400))
        trial.close(f"kurtosis {kurtosis}", kurtosis, isv[422], 0.12 * kurtosis)


@oracle("streaming")
def streaming_outputs_are_clamped_and_floored(trial: Trial) -> None:
    isv = _run(trial, "rl_var_over_abs_mean_streaming", isv_vector(), np.array([-1.0, 1.0, -1.0, 1.0]))
    trial.equal("mean 0: the ceiling", 100.0, isv[421])
    outlier = np.zeros(400)
    outlier[7] = 1e3
    isv = _run(trial, "rl_kurtosis_streaming", isv_vector(), outlier)
    trial.equal("one outlier: the ceiling", 30.0, isv[422])
    isv = _run(trial, "rl_kurtosis_streaming", isv_vector(), np.array([1.0, -1.0] * 8) * 1e-5)
    trial.close("tiny variance: floored divisor", 1e-20 / 1e-12, isv[422], 1e-12)
    for kernel in ("rl_var_over_abs_mean_streaming", "rl_kurtosis_streaming"):
        isv = _run(trial, kernel, isv_vector(), np.zeros(16))
        trial.equal(f"{kernel}: all equal, no signal", isv_vector(), isv)
        live = _run(trial, kernel, isv_vector(), np.array([1.0, 2.0, 4.0]))
        for bad in (math.nan, math.inf):
            after = _run(trial, kernel, live, np.array([1.0, bad, 4.0]))
            trial.equal(f"{kernel}: {bad} leaves the moments alone", live, after)


@oracle("streaming")
def ema_update_per_step_averages_a_buffer(trial: Trial) -> None:
    rng, slot = np.random.default_rng(7), number("ENTROPY_OBSERVED_EMA")
    for rows in _ROWS:
        state, isv = 0.0, isv_vector()
        for _ in range(4):
            x = rng.uniform(0, 3, rows).astype(np.float32)
            isv = trial.run("ema_update_per_step", {"values": x, "isv": isv}, slot=slot, rows=rows)["isv"]
            state = _blend(state, float(x.mean(dtype=np.float64)))
        trial.close(f"{rows} rows", state, isv[slot], 1e-6)
        bad = trial.run("ema_update_per_step", {"values": x * math.nan, "isv": isv}, slot=slot, rows=rows)["isv"]
        trial.equal(f"{rows} rows: NaN leaves it alone", isv, bad)


def _policy(rng: np.random.Generator, rows: int, classes: int) -> dict[str, np.ndarray]:
    return {
        "pi_all": rng.normal(0, 2, (rows, classes * 11)).astype(np.float32),
        "b_pi": rng.normal(0, 1, classes * 11).astype(np.float32),
        "w_pi_ctx": rng.normal(0, 1, (3, classes * 11)).astype(np.float32),
        "context": rng.normal(0, 1, (rows, 3)).astype(np.float32),
        "position_class": rng.integers(0, classes, rows).astype(np.int32),
        "action_drawn": rng.integers(0, 11, rows).astype(np.int8),
        "log_prob": np.log(rng.uniform(0.02, 0.9, rows)).astype(np.float32),
        "log_ratio": np.zeros(rows, np.float32),
    }


@oracle("streaming")
def log_ratio_rows_match_numpy(trial: Trial) -> None:
    """log(p_min + (1 - 11 p_min) softmax) of the drawn action at the row's class, less the stored log p."""
    for rows, classes in ((1, 9), (100, 9), (33, 1)):
        a = _policy(np.random.default_rng(rows), rows, classes)
        got = trial.run("rl_log_ratio_rows", {**a, "isv": isv_vector()}, rows=rows, P=classes)["log_ratio"]
        logits = a["pi_all"].astype(np.float64) + a["b_pi"] + a["context"].astype(np.float64) @ a["w_pi_ctx"]
        own = logits.reshape(rows, classes, 11)[np.arange(rows), a["position_class"]]
        soft = np.exp(own - own.max(-1, keepdims=True))
        soft /= soft.sum(-1, keepdims=True)
        p = 0.015 + (1 - 11 * 0.015) * soft[np.arange(rows), a["action_drawn"]]
        trial.close(f"{rows} rows, {classes} classes", np.log(p) - a["log_prob"], got, 1e-5)


@oracle("streaming")
def kl_and_largest_log_ratio(trial: Trial) -> None:
    slots = [number("KL_PI_EMA"), number("PPO_LOG_RATIO_ABS_MAX")]
    for rows in _ROWS:
        rng, isv, state = np.random.default_rng(20 + rows), isv_vector(), 0.0
        for _ in range(5):
            x = rng.normal(-0.01, 0.2, rows).astype(np.float32)
            for kernel in ("rl_kl_approx_b", "ppo_log_ratio_abs_max_b"):
                isv = trial.run(kernel, {"log_ratio": x, "isv": isv}, rows=rows)["isv"]
            state = _blend(state, -float(x.mean(dtype=np.float64)))
            trial.close(f"{rows} rows", [state, np.abs(x).max()], isv[slots], 1e-6)
        still = trial.run("rl_kl_approx_b", {"log_ratio": x * 0, "isv": isv}, rows=rows)["isv"]
        trial.equal(f"{rows} rows: no update applied, no observation", isv, still)
        bad = x.copy()
        bad[-1] = math.nan
        after = trial.run("rl_kl_approx_b", {"log_ratio": bad, "isv": isv}, rows=rows)["isv"]
        trial.equal(f"{rows} rows: NaN leaves the KL alone", isv, after)
        shown = trial.run("ppo_log_ratio_abs_max_b", {"log_ratio": bad, "isv": isv}, rows=rows)["isv"]
        trial.true(f"{rows} rows: and shows in the maximum", math.isnan(shown[slots[1]]))
