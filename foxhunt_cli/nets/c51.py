"""The C51 head: 21 atoms for each position class and action, noisy weights, double DQN with a target copy.

Owns tensors, buffers and steps of the head. Noise is drawn once an update and used at h and h_n alike; expectations for
acting, distillation and gates use the mean weights. No gradient goes to the encoding unless a caller asks for it.
"""

from __future__ import annotations

import math

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.config.dims import STRUCTURE
from foxhunt_cli.isv.table import by_name, number
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.nets.target import NONFINITE_Q, NORM_PARTS, CriticBatch, gradient_norm, nonfinite_parts
from foxhunt_cli.pipeline.stage import Fused, Matmul, Stage, Step, View, Zero

ATOMS = 21
_OUT = f"P*N_ACTIONS*{ATOMS}"
_PAIRS = "P*N_ACTIONS"


def parameters(sigma0: float) -> tuple[Parameter, ...]:
    """The four tensors; sigma0 is slot NOISY_SIGMA0: initial sigma = sigma0 / sqrt(inputs) (Fortunato et al. 2018)."""
    sigma = sigma0 / math.sqrt(STRUCTURE["HIDDEN_DIM"][0])
    return (
        Parameter("w_c51", f"HIDDEN_DIM, {_OUT}", "xavier", 0.1, "LR_Q", target=True),
        Parameter("b_c51", _OUT, "constant", 0.0, "LR_Q", target=True),
        Parameter("sw_c51", f"HIDDEN_DIM, {_OUT}", "constant", sigma, "LR_Q", target=True),
        Parameter("sb_c51", _OUT, "constant", sigma, "LR_Q", target=True),
    )


SIGMA0 = by_name()["NOISY_SIGMA0"].seed
PARAMETERS = parameters(SIGMA0)


def _scratch(name: str, dims: str, unit: str, meaning: str, dtype: str = "float32") -> Buffer:
    return Buffer(name, dims, dtype, "iteration", unit, meaning)


BUFFERS = (
    Buffer("rng_c51_noise", f"HIDDEN_DIM + {_OUT}", "uint32", "persistent", "state", "noise of the online head"),
    Buffer("rng_c51_target_noise", f"HIDDEN_DIM + {_OUT}", "uint32", "persistent", "state", "noise of the target head"),
    Buffer("ones_replay", "R + N_TAU", "float32", "data", "1", "what sums of columns multiply with"),
    _scratch("c51_atoms", f"{ATOMS}", "scaled", "values of the atoms"),
    _scratch("c51_noise", f"HIDDEN_DIM + {_OUT}", "1", "f(e) of inputs, then outputs, online head"),
    _scratch("c51_target_noise", f"HIDDEN_DIM + {_OUT}", "1", "the same of the target head"),
    _scratch("noisy_w_c51", f"HIDDEN_DIM, {_OUT}", "1", "weights under this update's noise"),
    _scratch("noisy_b_c51", _OUT, "1", "biases under this update's noise"),
    _scratch("noisy_target_w_c51", f"HIDDEN_DIM, {_OUT}", "1", "target weights under this update's noise"),
    _scratch("noisy_target_b_c51", _OUT, "1", "target biases under this update's noise"),
    _scratch("c51_logits", f"R, {_OUT}", "logits", "online head at h, without bias"),
    _scratch("c51_next_logits", f"R, {_OUT}", "logits", "online head at h_n, without bias"),
    _scratch("c51_target_logits", f"R, {_OUT}", "logits", "target head at h_n, without bias"),
    _scratch("grad_c51_logits", f"R, {_OUT}", "1", "gradient of the loss"),
    _scratch("c51_best_action", "R, P", "action", "argmax of the online head at h_n", "int8"),
    _scratch("c51_next_prob", f"R, P, {ATOMS}", "1", "target distribution at that action"),
    _scratch("c51_target", f"R, {ATOMS}", "1", "projected target of the executed action"),
    _scratch("c51_row_target", "R", "scaled", "mean of that target before clipping"),
    _scratch("c51_row_clipped", "R", "1", "its mass outside the span"),
    _scratch("c51_row_gap", "R", "scaled", "E[Q] - target at the executed action"),
    _scratch("c51_class_loss", "R, P", "nats", "cross-entropy, mean over a class's actions"),
    _scratch("c51_class_top", "R, P", "scaled", "largest mean target of a class before clipping"),
    _scratch("c51_class_low", "R, P", "scaled", "least mean target of a class before clipping"),
    _scratch("c51_class_clipped", "R, P", "1", "target mass outside the span, mean over a class's actions"),
    _scratch("c51_td", "R", "nats", "TD error of a row: its cross-entropy, mean over the pairs learned"),
    _scratch("c51_q", f"T, B, {_PAIRS}", "scaled", "E[Q] of every class and action"),
    _scratch("q_mean", "B, N_ACTIONS", "scaled", "E[Q] at the row's class"),
    _scratch("q_sigma", "B, N_ACTIONS", "scaled", "standard deviation of Q at the row's class"),
)


def support() -> list[Step]:
    """The atoms from the span slots, once an iteration."""
    return [Stage("rl_atom_support_update")]


def row_q(features: str = "target_h") -> Stage:
    """q_mean, q_sigma of each row's own class at environment step ``t`` (bound by the caller), without noise."""
    return Stage("rl_c51_row_q", {"h": features, "rows": "B"})


def expected_q(rows: int, chunk: int, features: str = "target_h", out: str = "c51_q") -> list[Step]:
    """E[Q] of every class and action for ``rows`` encodings, without noise, ``chunk`` (at most R) rows at a time."""
    steps: list[Step] = []
    for row0 in range(0, rows, chunk):
        count = str(min(chunk, rows - row0))
        steps += [
            Matmul(
                f"c51 q rows {row0}",
                View(features, count, "HIDDEN_DIM", row0=str(row0)),
                View("w_c51", "HIDDEN_DIM", _OUT),
                View("c51_logits", count, _OUT),
            ),
            Stage("rl_c51_expected_q", {"c51_q": out, "rows": count, "row0": str(row0)}),
        ]
    return steps


def draw_noise() -> list[Step]:
    """Fresh noise for both heads, once an update."""
    size = {"n": f"HIDDEN_DIM + {_OUT}"}
    return [
        Stage("rl_sample_noise", {"rng_noise": f"rng_{drawn}", "noise": drawn} | size)
        for drawn in ("c51_noise", "c51_target_noise")
    ]


def no_noise() -> list[Step]:
    """Zeros in the place of noise: the composed weights are the mean weights, sigmas get no gradient."""
    return [Zero("c51_noise"), Zero("c51_target_noise")]


def compose_noise() -> list[Step]:
    """Both heads' weights under the noise drawn."""
    return [
        Stage(
            "rl_noisy_compose",
            {"noise": f"c51_{head}noise", "noisy_w": f"noisy_{head}w_c51", "noisy_b": f"noisy_{head}b_c51"}
            | {name: f"{head}{name}_c51" for name in ("w", "b", "sw", "sb")}
            | {"inputs": "HIDDEN_DIM", "outputs": _OUT},
        )
        for head in ("", "target_")
    ]


def _product(label: str, features: str, rows: str, head: str, out: str) -> Matmul:
    weights = View(f"noisy_{head}w_c51", "HIDDEN_DIM", _OUT)
    return Matmul(label, View(features, rows, "HIDDEN_DIM"), weights, View(out, rows, _OUT))


def online_logits(batch: CriticBatch) -> Matmul:
    """c51_logits of the online head at h, without bias."""
    return _product("c51", batch.h, batch.rows, "", "c51_logits")


def forward(batch: CriticBatch, *, everywhere: bool = False) -> list[Step]:
    """Logits at h and h_n, the online head's choice at h_n, the target head's distribution there.

    everywhere: the target head's logits of every pair by a product, as a GPU wants it, not at the choices alone.
    """
    rows, choice = {"rows": batch.rows}, {"best_action": "c51_best_action"}
    online = {"c51_logits": "c51_next_logits", "b_c51": "noisy_b_c51"}
    target = choice | rows | {"target_b_c51": "noisy_target_b_c51", "next_prob": "c51_next_prob"}
    steps: list[Step] = [
        online_logits(batch),
        _product("c51 next", batch.next_h, batch.rows, "", "c51_next_logits"),
        Stage("argmax_expected_q", online | choice | rows),
    ]
    if everywhere:
        steps.append(_product("c51 target", batch.next_h, batch.rows, "target_", "c51_target_logits"))
        steps.append(Stage("rl_c51_next_distribution", target | {"target_logits": "c51_target_logits"}))
    else:
        steps.append(Stage("rl_c51_next_at_choice", target | {"h": batch.next_h, "target_w_c51": "noisy_target_w_c51"}))
    return steps


def either_forward(batch: CriticBatch) -> Fused:
    """``forward`` as the device likes it."""
    return Fused(tuple(forward(batch, everywhere=True)), tuple(forward(batch)))


def loss_and_backward(batch: CriticBatch, update: int, *, path: bool, grad_h: str | None = None) -> list[Step]:
    """Loss, c51_td and gradients of the four tensors; ``update`` counts the updates of the iteration.

    path: targets of every class and action, else of the executed action. grad_h: a buffer that the gradient of the
    batch's encodings is added to (critic gradient); None, the default, computes none.
    """
    grad = View("grad_c51_logits", batch.rows, _OUT)
    elements = f"HIDDEN_DIM*{_OUT}"
    steps = [*(_path_loss if path else _executed_loss)(batch, update)]
    steps += [
        Stage(
            "rl_mean_into_slot",
            {"row_loss": "c51_td", "row_weight": batch.ones, "rows": batch.rows}
            | {"slot": str(number("LOSS_Q")), "part": NONFINITE_Q}
            | {"nonfinite_parts": nonfinite_parts("critic")},
        ),
        Matmul(
            "c51 grad w",
            View(batch.h, batch.rows, "HIDDEN_DIM"),
            grad,
            View("grad_w_c51", "HIDDEN_DIM", _OUT),
            trans_a=True,
        ),
        Matmul("c51 grad b", View(batch.ones, "1", batch.rows), grad, View("grad_b_c51", "1", _OUT)),
        Stage(
            "rl_noisy_backward",
            {f"grad_{name}": f"grad_{name}_c51" for name in ("w", "b", "sw", "sb")}
            | {"noise": "c51_noise", "inputs": "HIDDEN_DIM", "outputs": _OUT},
        ),
        *gradient_norm("grad_w_c51", elements, "Q_GRAD_NORM_EMA"),
    ]
    if grad_h is not None:
        w, out = View("noisy_w_c51", "HIDDEN_DIM", _OUT), View(grad_h, batch.rows, "HIDDEN_DIM")
        steps.append(Matmul("c51 grad h", grad, w, out, trans_b=True, accumulate=True))
    return steps


def divergence() -> list[Step]:
    """|W - W_target| / |W| into Q_DIVERGENCE_EMA."""
    parts = {"NORM_PARTS": str(NORM_PARTS)}
    weights = {"w": "w_c51", "target_w": "target_w_c51", "n": f"HIDDEN_DIM*{_OUT}"}
    return [Stage("rl_difference_parts", weights | parts), Stage("rl_l2_diff_norm", parts)]


def _path_loss(batch: CriticBatch, update: int) -> list[Step]:
    classes = {f"class_{name}": f"c51_class_{name}" for name in ("loss", "top", "low", "clipped")}
    inputs = batch.remap("path_return", "next_class", "lots", "action", "discount", "terminal", "weight")
    return [
        Stage(
            "rl_c51_path_loss",
            inputs | classes | {"b_c51": "noisy_b_c51", "next_prob": "c51_next_prob", "row_gap": "c51_row_gap"},
        ),
        Stage("rl_row_mean", {"matrix": "c51_class_loss", "row_mean": "c51_td", "rows": batch.rows, "width": "P"}),
        *_statistics(batch, update, "c51_class_top", "c51_class_low", "c51_class_clipped", f"{batch.rows}*P"),
    ]


def _statistics(batch: CriticBatch, update: int, tops: str, lows: str, clipped: str, n: str) -> list[Step]:
    """Slots about the targets of an update, and how far E[Q] is from them at the executed actions."""
    targets = {"tops": tops, "lows": lows, "clipped": clipped, "n": n, "update": str(update)}
    return [
        Stage("rl_q_target_statistics", targets),
        Stage("rl_q_bias", {"row_gap": "c51_row_gap", "rows": batch.rows}),
    ]


def _executed_loss(batch: CriticBatch, update: int) -> list[Step]:
    rows = {"row_target": "c51_row_target", "row_clipped": "c51_row_clipped"}
    return [
        Stage(
            "bellman_target_projection",
            rows | {"next_prob": "c51_next_prob"} | batch.remap("next_lots", "reward", "discount", "terminal"),
        ),
        Stage(
            "rl_c51_executed_loss",
            {"b_c51": "noisy_b_c51", "row_target": "c51_row_target", "row_gap": "c51_row_gap"}
            | batch.remap("lots", "action", "weight"),
        ),
        *_statistics(batch, update, "c51_row_target", "c51_row_target", "c51_row_clipped", batch.rows),
    ]
