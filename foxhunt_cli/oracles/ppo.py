"""Oracles of the policy draw, advantages, the clipped surrogate, entropy and value loss.

References are float64 numpy from the definitions; gradients are also checked against central differences of the
float64 loss, so a wrong formula cannot agree with itself.
"""

from __future__ import annotations

import numpy as np

from foxhunt_cli.config.dims import HEAD_CONTEXT_DIM, N_ACTIONS
from foxhunt_cli.device.rng import seed_states
from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.isv.table import number
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.formulas import softmax

# Softmax of 11 logits of order 1: a few roundings of expf (2 ulp) and of the sum, 2^-24 each.
PROBABILITY_TOLERANCE = 2e-6
# Gradients of order 1 built from those probabilities, divided by p >= 0.005.
GRADIENT_TOLERANCE = 2e-5
# GAE over 16 steps of order 1: 16 roundings accumulate.
ADVANTAGE_TOLERANCE = 2e-5


def heads(seed: int, rows: int, classes: int) -> dict[str, np.ndarray]:
    """Random head outputs, contexts and classes."""
    rng = np.random.default_rng(seed)
    width = classes * N_ACTIONS
    return {
        "pi_all": rng.normal(size=(rows, width)).astype(np.float32),
        "b_pi": rng.normal(size=width).astype(np.float32),
        "w_pi_ctx": rng.normal(size=(HEAD_CONTEXT_DIM, width)).astype(np.float32),
        "context": rng.uniform(-1, 1, (rows, HEAD_CONTEXT_DIM)).astype(np.float32),
        "position_class": rng.integers(0, classes, rows).astype(np.int32),
    }


def row_logits(h: dict[str, np.ndarray]) -> np.ndarray:
    """float64 [rows, 11] logits of each row's own class."""
    all_logits = h["pi_all"].astype(np.float64) + h["b_pi"] + h["context"].astype(np.float64) @ h["w_pi_ctx"]
    by_class = all_logits.reshape(len(h["pi_all"]), -1, N_ACTIONS)
    return by_class[np.arange(len(by_class)), h["position_class"]]


def floored(logits: np.ndarray, p_min: float) -> np.ndarray:
    return p_min + (1 - N_ACTIONS * p_min) * softmax(logits)


@oracle("ppo")
def policy_draw_follows_the_floored_mixture(trial: Trial) -> None:
    """Frequencies of 20,000 draws of one distribution against p (chi squared), and log p of what was drawn."""
    rows, isv = 20_000, seed_values({"p_min": 0.02})
    h = {
        k: np.repeat(v[:1], rows, axis=0) if k in ("pi_all", "context", "position_class") else v
        for k, v in heads(1, 1, 3).items()
    }
    out = _draw(trial, h, isv, rows, greedy=0)
    p = floored(row_logits(h)[:1], 0.02)[0]
    counts = np.bincount(out["action_drawn"], minlength=N_ACTIONS)
    # 29.6 is the 99.9 % quantile of chi squared with 10 degrees of freedom; the seed is fixed.
    trial.true("chi squared below 29.6", float(((counts - rows * p) ** 2 / (rows * p)).sum()) < 29.6, counts)
    trial.close("log p of the draw", np.log(p)[out["action_drawn"]], out["log_prob"], 5e-6)


def _draw(trial: Trial, h: dict[str, np.ndarray], isv: np.ndarray, rows: int, greedy: int) -> dict[str, np.ndarray]:
    outputs = {"action_drawn": np.zeros(rows, np.int8), "log_prob": np.zeros(rows, np.float32)}
    arrays = {**h, **outputs, "isv": isv, "rng_action": seed_states(3, "draw", rows)}
    return trial.run("rl_pi_action_kernel", arrays, B=rows, P=len(h["b_pi"]) // N_ACTIONS, t=0, greedy=greedy)


@oracle("ppo")
def p_min_bounds_probabilities(trial: Trial) -> None:
    """With P_MIN = 0.015 the largest probability is 0.85 and the smallest 0.015, however large a logit is."""
    h = heads(2, 4, 3)
    h["pi_all"][:] = 0.0
    h["b_pi"][:] = 0.0
    h["context"][:] = 0.0
    h["pi_all"][:, 2::N_ACTIONS] = 80.0
    out = _draw(trial, h, seed_values({"p_min": 0.015}), 4, greedy=1)
    trial.equal("greedy action", 2, out["action_drawn"])
    trial.close("largest probability", 0.85, np.exp(out["log_prob"].astype(np.float64)), PROBABILITY_TOLERANCE)


@oracle("ppo")
def draw_of_a_non_finite_row_is_hold_and_visible(trial: Trial) -> None:
    """NaN logits: the row holds, and its log-probability stays NaN for the losses to count."""
    h = heads(3, 2, 3)
    h["pi_all"][0] = np.nan
    out = _draw(trial, h, seed_values({}), 2, greedy=0)
    trial.equal("action", 2, out["action_drawn"][0])
    trial.true("log p is NaN", np.isnan(out["log_prob"][0]), out["log_prob"])


@oracle("ppo")
def gae_matches_the_definition(trial: Trial) -> None:
    """A_t = sum over k of (gamma lambda)^k delta_{t+k}, cut at terminals; lambda = 0 is the one-step advantage."""
    rng = np.random.default_rng(4)
    steps, rows = 16, 5
    reward, value = (
        rng.normal(size=(steps, rows)).astype(np.float32),
        rng.normal(size=(steps + 1, rows)).astype(np.float32),
    )
    terminal = (rng.random((steps, rows)) < 0.2).astype(np.uint8)
    for lam in (0.0, 0.95):
        isv = seed_values({"gae_lambda": lam, "gamma": 0.97})
        out = _gae(trial, reward, terminal, value, isv)
        want = np.zeros((steps, rows))
        for start in range(steps):
            weight = np.ones(rows)
            for k in range(start, steps):
                keep = 0.97 * (1 - terminal[k])
                want[start] += weight * (reward[k] + keep * value[k + 1] - value[k])
                weight = weight * keep * lam
        trial.close(f"advantage, lambda {lam}", want, out["advantage"], ADVANTAGE_TOLERANCE)
        trial.close(
            f"value target, lambda {lam}", np.clip(want + value[:-1], -20, 20), out["value_target"], ADVANTAGE_TOLERANCE
        )


def _gae(
    trial: Trial, reward: np.ndarray, terminal: np.ndarray, value: np.ndarray, isv: np.ndarray
) -> dict[str, np.ndarray]:
    steps, rows = reward.shape
    arrays = {"reward": reward, "terminal": terminal, "value": value, "isv": isv}
    outputs = {"advantage": np.zeros_like(reward), "value_target": np.zeros_like(reward)}
    return trial.run("gae_advantage", {**arrays, **outputs}, B=rows, T=steps)


@oracle("ppo")
def advantage_statistics_leave_masked_rows_out(trial: Trial) -> None:
    """Mean, 1/std and count over the rows the policy chose; all masked gives zeros, not a division by zero."""
    rng = np.random.default_rng(5)
    advantage = rng.normal(2.0, 3.0, 700).astype(np.float32)
    overridden = (rng.random(700) < 0.4).astype(np.uint8)
    kept = advantage[overridden == 0].astype(np.float64)
    returns = rng.normal(-1.0, 2.0, 700).astype(np.float32)
    base = {"advantage": advantage, "value_target": returns, "isv": seed_values({}), "moments": np.zeros(6, np.float32)}
    sizes = {"T": 7, "B": 100, "mask_overridden": 1}
    out = trial.run("rl_advantage_statistics", {**base, "overridden": overridden}, **sizes)
    # Sums of 420 values of order 5 in float32: relative error below 1e-6.
    trial.close("moments", [kept.mean(), 1 / (kept.std() + 1e-6), len(kept)], out["moments"][:3], 5e-6)
    exact = returns.astype(np.float64)
    trial.close("returns", [exact.mean(), (exact**2).mean(), 0], out["moments"][3:], 5e-6)
    trial.close("mean |A|", np.abs(kept).mean(), out["isv"][number("ADV_ABS_MEAN")], 5e-6)
    none = trial.run("rl_advantage_statistics", {**base, "overridden": np.ones(700, np.uint8)}, **sizes)
    trial.equal("all masked", 0, none["moments"][:3])
    alone = np.ones(700, np.uint8)
    alone[5] = 0
    one = trial.run("rl_advantage_statistics", {**base, "overridden": alone}, **sizes)
    trial.equal("one row: as it is", [0, 1, 1], one["moments"][:3])


def surrogate_case(seed: int, rows: int = 64) -> dict[str, np.ndarray]:
    """Rows with ratios on both sides of the clip and of the ratio clamp, masked rows among them."""
    rng = np.random.default_rng(seed)
    h = heads(seed, rows, 3)
    p = floored(row_logits(h), 0.005)
    drawn = rng.integers(0, N_ACTIONS, rows)
    shift = rng.choice([-4.0, -0.5, -0.1, 0.1, 0.5, 4.0], rows)
    return {
        **h,
        "action_drawn": drawn.astype(np.int8),
        "log_prob": (np.log(p[np.arange(rows), drawn]) - shift).astype(np.float32),
        "advantage": rng.normal(size=rows).astype(np.float32),
        "overridden": (rng.random(rows) < 0.2).astype(np.uint8),
    }


def run_surrogate(
    trial: Trial, case: dict[str, np.ndarray], isv: np.ndarray, moments: np.ndarray
) -> dict[str, np.ndarray]:
    """Forward, then backward; everything both wrote."""
    rows, width = case["pi_all"].shape
    sizes = {"rows": rows, "P": width // N_ACTIONS, "mask_overridden": 1}
    row = np.zeros(rows, np.float32)
    outputs = {
        "pi_soft": np.zeros((rows, N_ACTIONS), np.float32),
        "log_ratio": row,
        "row_loss_pi": row,
        "row_entropy": row,
    }
    forward = trial.run("ppo_clipped_surrogate_fwd", {**case, **outputs, "moments": moments, "isv": isv}, **sizes)
    needed = {k: case[k] for k in ("position_class", "action_drawn", "advantage", "overridden")}
    saved = {k: forward[k] for k in ("pi_soft", "log_ratio", "row_entropy")}
    grad = {"grad_pi_all": np.full((rows, width), 7.0, np.float32), "moments": moments, "isv": isv}
    return {**forward, **trial.run("ppo_clipped_surrogate_bwd", {**needed, **saved, **grad}, **sizes)}


def reference_loss(case: dict[str, np.ndarray], logits: np.ndarray, moments: np.ndarray, entropy_coef: float) -> tuple:
    """float64 (row losses of the surrogate, row entropies, total loss) as a function of the rows' logits [rows, 11]."""
    rows = len(logits)
    soft = softmax(logits)
    p = 0.005 + (1 - N_ACTIONS * 0.005) * soft
    ratio = np.clip(np.exp(np.log(p[np.arange(rows), case["action_drawn"]]) - case["log_prob"]), 0.1, 10.0)
    a = (case["advantage"].astype(np.float64) - moments[0]) * moments[1]
    loss = -np.minimum(ratio * a, np.clip(ratio, 0.8, 1.2) * a) * (case["overridden"] == 0)
    entropy = -(soft * np.log(soft)).sum(-1)
    return loss, entropy, loss.sum() / moments[2] - entropy_coef * entropy.mean()


@oracle("ppo")
def surrogate_forward_matches_the_definition(trial: Trial) -> None:
    """Losses and entropies with ratios inside and outside of clip and clamp; masked rows lose nothing."""
    case, moments = surrogate_case(6), np.array([0.1, 1.3, 50.0], np.float32)
    out = run_surrogate(trial, case, seed_values({"p_min": 0.005}), moments)
    loss, entropy, _ = reference_loss(case, row_logits(case), moments, 0.01)
    trial.close("row losses", loss, out["row_loss_pi"], GRADIENT_TOLERANCE)
    trial.close("row entropies, nats", entropy, out["row_entropy"], PROBABILITY_TOLERANCE * 5)


@oracle("ppo")
def surrogate_backward_matches_central_differences(trial: Trial) -> None:
    """d loss / d logits through floored mixture, clip, clamp, mask and entropy bonus; other classes get exactly 0."""
    case, moments = surrogate_case(7), np.array([0.1, 1.3, 50.0], np.float32)
    coef = 0.05
    out = run_surrogate(trial, case, seed_values({"p_min": 0.005, "entropy_coef": coef}), moments)
    logits, rows = row_logits(case), len(case["pi_all"])
    want = np.zeros_like(logits)
    for r in range(rows):
        for a in range(N_ACTIONS):
            up, down = logits.copy(), logits.copy()
            up[r, a] += 1e-5
            down[r, a] -= 1e-5
            want[r, a] = (
                reference_loss(case, up, moments, coef)[2] - reference_loss(case, down, moments, coef)[2]
            ) / 2e-5
    grad = out["grad_pi_all"].reshape(rows, -1, N_ACTIONS)
    own = grad[np.arange(rows), case["position_class"]]
    trial.close("own class", want, own, GRADIENT_TOLERANCE)
    trial.true("the gradient is not zero everywhere", np.abs(want).max() > 1e-3, np.abs(want).max())
    mask = np.ones(grad.shape[:2], bool)
    mask[np.arange(rows), case["position_class"]] = False
    trial.equal("other classes", 0, grad[mask])


@oracle("ppo")
def ratio_is_clamped_before_the_surrogate(trial: Trial) -> None:
    """A ratio of e^30 counts as PPO_RATIO_CLAMP_MAX and passes no gradient."""
    case = surrogate_case(8, rows=4)
    case["log_prob"] = case["log_prob"] - np.float32(30.0)
    case["advantage"][:] = -1.0  # the unclipped branch is the active one
    case["overridden"][:] = 0
    isv = seed_values({"p_min": 0.005, "entropy_coef": 1e-4})
    out = run_surrogate(trial, case, isv, np.array([0.0, 1.0, 4.0], np.float32))
    trial.close("loss", 10.0, out["row_loss_pi"], 1e-5)
    # What is left is the entropy bonus: coefficient 1e-4 / 4 rows times a slope below 1.
    trial.true(
        "surrogate passes no gradient", np.abs(out["grad_pi_all"]).max() < 1e-4, np.abs(out["grad_pi_all"]).max()
    )


@oracle("ppo")
def value_loss_and_gradient_match_huber(trial: Trial) -> None:
    """Huber of the PopArt-normalised error on both sides of kappa; gradient at the row's own class only."""
    isv = seed_values({"loss_lambda_v": 0.5})
    isv[number("POPART_MEAN")], isv[number("POPART_SECOND_MOMENT")] = 1.0, 5.0  # sigma = 2
    value, target = np.array([0.0, 3.0, -8.0, 1.0], np.float32), np.array([1.0, 2.0, 2.0, 1.0], np.float32)
    classes = np.array([0, 1, 2, 1], np.int32)
    arrays = {"value": value, "value_target": target, "position_class": classes, "isv": isv}
    outputs = {"grad_v_all": np.full((4, 3), 9.0, np.float32), "row_loss_v": np.zeros(4, np.float32)}
    out = trial.run("rl_value_loss_grad", {**arrays, **outputs}, rows=4, P=3)
    error = (value - target) / 2.0
    trial.close("losses", [0.125, 0.125, 4.5, 0.0], out["row_loss_v"], 1e-6)
    want = np.zeros((4, 3))
    want[np.arange(4), classes] = 0.5 * np.clip(error, -1, 1) / 4
    trial.close("gradient", want, out["grad_v_all"], 1e-7)


@oracle("ppo")
def value_of_the_own_class_is_denormalised(trial: Trial) -> None:
    """value = mean + sigma (v + b + context term) at the row's class."""
    rng = np.random.default_rng(9)
    isv = seed_values({})
    isv[number("POPART_MEAN")], isv[number("POPART_SECOND_MOMENT")] = 0.5, 0.25 + 9.0  # sigma = 3
    v, b, w = (rng.normal(size=s).astype(np.float32) for s in ((6, 5), 5, (HEAD_CONTEXT_DIM, 5)))
    context, classes = rng.normal(size=(6, HEAD_CONTEXT_DIM)).astype(np.float32), rng.integers(0, 5, 6).astype(np.int32)
    arrays = {"v_all": v, "b_v": b, "w_v_ctx": w, "context": context, "position_class": classes, "isv": isv}
    out = trial.run("rl_value_rows", {**arrays, "value": np.zeros(6, np.float32)}, rows=6, P=5)
    want = 0.5 + 3.0 * (v + b + context @ w)[np.arange(6), classes]
    trial.close("value", want, out["value"], 1e-5)


@oracle("ppo")
def loss_reduce_is_a_mean_and_a_dry_iteration_is_no_signal(trial: Trial) -> None:
    """Mean losses into the ISV; no counted row leaves LOSS_PI alone; the entropy EMA takes its first value as it is."""
    rng = np.random.default_rng(10)
    rows = {n: rng.random(300).astype(np.float32) for n in ("row_loss_pi", "row_loss_v", "row_entropy")}
    isv = seed_values({})
    isv[number("LOSS_PI")] = 42.0
    for counted, want in ((200.0, rows["row_loss_pi"].sum(dtype=np.float64) / 200.0), (0.0, 42.0)):
        moments = np.array([0.0, 1.0, counted], np.float32)
        out = trial.run("rl_loss_reduce", {**rows, "moments": moments, "isv": isv}, rows=300)["isv"]
        trial.close(f"pi, {counted:.0f} rows", want, out[number("LOSS_PI")], 1e-5)
        trial.close("v", rows["row_loss_v"].mean(dtype=np.float64), out[number("LOSS_V")], 1e-6)
        trial.close("entropy", rows["row_entropy"].mean(dtype=np.float64), out[number("ENTROPY_OBSERVED_EMA")], 1e-6)
