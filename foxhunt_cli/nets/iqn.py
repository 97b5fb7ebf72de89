"""The implicit quantile head: Z_tau = (h * phi(tau)) . W + b for each position class and action, with a target copy.

Owns tensors, buffers and steps of the head. An update draws one set of N_TAU taus for the whole batch, and one for its
targets; expectations use midpoint taus. Only the columns a row needs are computed when learning. No gradient goes to
the encoding unless a caller asks for it.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.nets.target import NONFINITE_IQN, CriticBatch, nonfinite_parts
from foxhunt_cli.pipeline.stage import Fused, Matmul, Stage, Step, View

COSINES = 64
TAUS_MAX = 32
"""Taus of an update that the kernels have room for (IQN_MAX_TAUS of cuda_src/fused/iqn_tile.cuh)."""
FEW_ROWS = 256
"""Rows that UPDATE_BLOCKS tiles of two hold (cuda_src/fused/iqn_update.cu): a block has one tile."""
_PAIRS = "P*N_ACTIONS"
_H = "HIDDEN_DIM"
_PART_SIZE = f"{_PAIRS}*({_H} + 1) + {TAUS_MAX}*{_H} + 3"  # IQN_PART_SIZE of cuda_src/fused/iqn_tile.cuh
SUM_BLOCKS = f"(33 + ({_PAIRS}*({_H} + 1) + 63)/64)"
"""Blocks of rl_iqn_update_reduce, each of which leaves how many of its gradients are not finite."""

PARAMETERS = (
    Parameter("w_iqn_phi", f"{COSINES}, {_H}", "xavier", 1.0, "IQN_LR", target=True),
    Parameter("b_iqn_phi", _H, "constant", 0.0, "IQN_LR", target=True),
    Parameter("w_iqn", f"{_H}, {_PAIRS}", "xavier", 0.1, "IQN_LR", target=True),
    Parameter("b_iqn", _PAIRS, "constant", 0.0, "IQN_LR", target=True),
)


def _scratch(name: str, dims: str, unit: str, meaning: str, dtype: str = "float32") -> Buffer:
    return Buffer(name, dims, dtype, "iteration", unit, meaning)


# The three sets of taus: of the predictions, of the targets (target head), and the midpoints of expectations.
_SETS = ("", "_next", "_mid")

BUFFERS = (
    Buffer("rng_tau", "N_TAU", "uint32", "persistent", "state", "taus of the predictions"),
    Buffer("rng_tau_next", "N_TAU", "uint32", "persistent", "state", "taus of the targets"),
    *(_scratch(f"iqn_tau{s}", "N_TAU", "1", f"quantile fractions{s}") for s in _SETS),
    *(_scratch(f"iqn_cos{s}", f"N_TAU, {COSINES}", "1", f"cos(i pi tau){s}") for s in _SETS),
    *(_scratch(f"iqn_phi{s}", f"N_TAU, {_H}", "1", f"embedding of the taus{s}") for s in _SETS),
    *(
        _scratch(f"iqn_phi{s}_t", f"{_H}, {TAUS_MAX}", "1", f"the same transposed, zero beyond N_TAU{s}")
        for s in _SETS[:2]
    ),
    _scratch("iqn_mean_w", f"{_H}, {_PAIRS}", "1", "W scaled by the mean embedding"),
    _scratch("iqn_q", f"T, B, {_PAIRS}", "scaled", "E[IQN] of every class and action, without bias"),
    _scratch("iqn_next_q", f"R, {_PAIRS}", "scaled", "E[IQN] of the online head at h_n, without bias"),
    _scratch("iqn_best_action", "R, P", "action", "its argmax", "int8"),
    _scratch("iqn_column", "R, N_ACTIONS", "pair", "columns learned, at h", "int32"),
    _scratch("iqn_next_column", "R, N_ACTIONS", "pair", "columns of the targets, at h_n", "int32"),
    _scratch("iqn_reward", "R, N_ACTIONS", "scaled", "n-step return of a slot"),
    _scratch("iqn_z", "R*N_ACTIONS, N_TAU", "scaled", "quantiles at h, without bias"),
    _scratch("iqn_next_z", "R*N_ACTIONS, N_TAU", "scaled", "target quantiles at h_n, without bias"),
    _scratch("grad_iqn_z", "R*N_ACTIONS, N_TAU", "1", "gradient of the loss"),
    _scratch("iqn_class_rows", "P, R + 1", "row", "how many rows a class has, then which", "int32"),
    _scratch("iqn_class_phi", f"P, N_TAU, {_H}", "1", "a class's share of the gradient of the embedding"),
    _scratch("grad_iqn_phi", f"N_TAU, {_H}", "1", "gradient of the loss"),
    _scratch("grad_iqn_slot", "R*N_ACTIONS", "1", "gradient of the slot's bias"),
    _scratch("iqn_slot_loss", "R*N_ACTIONS", "1", "quantile Huber loss of a slot"),
    _scratch("row_loss_iqn", "R", "1", "quantile Huber loss of a row"),
    _scratch("iqn_columns", f"2, {_PAIRS}, {_H}", "1", "W and the target head's W, transposed"),
    _scratch("iqn_phi_sets", f"3, N_TAU, {_H}", "1", "embeddings: of predictions, of targets, of midpoints"),
    _scratch("iqn_bad_parts", SUM_BLOCKS, "1", "gradients that are not finite, by block of the sums", "int32"),
    _scratch("iqn_update_parts", f"128, {_PART_SIZE}", "mixed", "sums of a block of rows: gradients and loss"),
)


def _embed(taus: str, head: str = "") -> list[Step]:
    """iqn_tau -> iqn_phi of one set of taus."""
    cosines, phi = View(f"iqn_cos{taus}", "N_TAU", str(COSINES)), View(f"iqn_phi{taus}", "N_TAU", _H)
    return [
        Stage("rl_iqn_cosines", {"iqn_tau": f"iqn_tau{taus}", "iqn_cos": f"iqn_cos{taus}", "n": "N_TAU"}),
        Matmul(f"iqn phi{taus}", cosines, View(f"{head}w_iqn_phi", str(COSINES), _H), phi),
        Stage("rl_iqn_phi", {"b_iqn_phi": f"{head}b_iqn_phi", "iqn_phi": f"iqn_phi{taus}", "n": "N_TAU"}),
    ]


def expected_q(rows: str = "T*B", features: str = "target_h", out: str = "iqn_q") -> list[Step]:
    """E[IQN] of every class and action for ``rows`` encodings, over midpoint taus: linear in the mean embedding.

    Without bias: b_iqn is added where the values are read.
    """
    return [
        Stage("rl_tau_midpoints", {"iqn_tau": "iqn_tau_mid", "n": "N_TAU"}),
        *_embed("_mid"),
        Stage("rl_iqn_mean_weights", {"iqn_phi": "iqn_phi_mid", "n": "N_TAU", "columns": _PAIRS}),
        Matmul(f"iqn {out}", View(features, rows, _H), View("iqn_mean_w", _H, _PAIRS), View(out, rows, _PAIRS)),
    ]


def draw_taus() -> list[Step]:
    """Fresh taus for predictions and targets, once an update."""
    return [
        Stage("rl_sample_tau", {"rng_tau": f"rng_tau{s}", "iqn_tau": f"iqn_tau{s}", "n": "N_TAU"})
        for s in ("", "_next")
    ]


def embed_taus() -> list[Step]:
    """Embeddings of the taus: the predictions' by the online head, the targets' by the target head."""
    columns = [
        Stage("rl_iqn_phi_columns", {"iqn_phi": f"iqn_phi{s}", "iqn_phi_t": f"iqn_phi{s}_t", "n": "N_TAU"})
        for s in ("", "_next")
    ]
    return [*_embed(""), *_embed("_next", "target_"), *columns]


def quantiles(batch: CriticBatch, *, path: bool, target: bool) -> list[Step]:
    """Quantiles of the columns learned: of the online head at h, or of the target head at h_n."""
    head, which, source = ("target_", "_next", batch.next_h) if target else ("", "", batch.h)
    names = {"h": source, "w_iqn": f"{head}w_iqn", "iqn_phi_t": f"iqn_phi{which}_t"}
    names |= {"iqn_column": f"iqn{which}_column", "iqn_z": f"iqn{which}_z"}
    return [Stage("rl_iqn_quantiles", names | {"rows": batch.rows, "slots": _slots(path), "n": "N_TAU"})]


def forward(batch: CriticBatch, *, path: bool) -> list[Step]:
    """The columns learned, their quantiles at h, and the target head's at h_n at the online head's own choice."""
    best = {"iqn_q": "iqn_next_q", "rows": batch.rows}
    columns = (
        Stage("rl_iqn_path_columns", batch.remap("lots", "next_class", "path_return"))
        if path
        else Stage("rl_iqn_executed_columns", batch.remap("lots", "next_lots", "action", "reward"))
    )
    return [
        *expected_q(batch.rows, batch.next_h, "iqn_next_q"),
        Stage("rl_iqn_argmax", best),
        columns,
        *quantiles(batch, path=path, target=False),
        *quantiles(batch, path=path, target=True),
    ]


def loss_and_backward(batch: CriticBatch, *, path: bool, grad_h: str | None = None) -> list[Step]:
    """Loss into its slot and gradients of the four tensors; grad_h: as in c51.loss_and_backward."""
    slots, taus = _slots(path), {"n": "N_TAU"}
    size = {"rows": batch.rows, "slots": slots}
    grad_phi, cosines = View("grad_iqn_phi", "N_TAU", _H), View("iqn_cos", "N_TAU", str(COSINES))
    steps: list[Step] = [
        Stage("rl_iqn_loss", batch.remap("discount", "terminal", "weight") | size | {"slot_loss": "iqn_slot_loss"}),
        Stage(
            "rl_row_mean", {"matrix": "iqn_slot_loss", "row_mean": "row_loss_iqn", "rows": batch.rows, "width": slots}
        ),
        Stage(
            "rl_mean_into_slot",
            {"row_loss": "row_loss_iqn", "row_weight": batch.ones, "rows": batch.rows}
            | {"slot": str(number("LOSS_IQN")), "part": NONFINITE_IQN, "nonfinite_parts": nonfinite_parts("critic")},
        ),
        Stage("rl_iqn_class_rows", size),
        Stage("rl_iqn_backward", {"h": batch.h} | size | taus),
        Stage("rl_iqn_phi_backward", taus),
        Matmul("iqn grad w_phi", cosines, grad_phi, View("grad_w_iqn_phi", str(COSINES), _H), trans_a=True),
        Matmul("iqn grad b_phi", View(batch.ones, "1", "N_TAU"), grad_phi, View("grad_b_iqn_phi", "1", _H)),
    ]
    if grad_h is not None:
        steps.append(Stage("rl_iqn_input_grad", {"grad_h": grad_h} | size | taus))
    return steps


def update(batch: CriticBatch, *, path: bool, rows: int) -> Fused:
    """A whole update but for the optimiser: fresh taus, loss into its slot, gradients of the four tensors.

    rows: of the batch; FEW_ROWS or fewer have a kernel of their own.
    """
    steps = (
        *draw_taus(),
        *embed_taus(),
        *forward(batch, path=path),
        *loss_and_backward(batch, path=path),
    )
    kernel = "rl_iqn_path_update" if path else "rl_iqn_executed_update"
    in_float32 = Fused(_fused(batch, kernel, path), steps)
    few = "_few" if path and rows <= FEW_ROWS else ""
    return Fused(_fused(batch, f"{kernel}{few}_tf32", path), (in_float32,), tf32=True)


def _fused(batch: CriticBatch, kernel: str, path: bool) -> tuple[Step, ...]:
    """Embeddings, rows, sums."""
    targets = ("path_return", "next_class") if path else ("next_lots", "action", "reward")
    size, r = {"n": "N_TAU"}, batch.rows
    blocks = f"({r}+1)/2 if {r} < 256 else 128" if path else f"({r}+7)/8 if {r} < 1024 else 128"
    inputs = batch.remap("lots", "discount", "terminal", "weight", *targets)
    return (
        Stage("rl_iqn_embed", size),
        Stage(kernel, {**inputs, "h": batch.h, "next_h": batch.next_h, **size}),
        Stage(
            "rl_iqn_update_reduce",
            {**size, "rows": r, "blocks": blocks, "part": NONFINITE_IQN, "nonfinite_parts": nonfinite_parts("critic")},
        ),
    )


def _slots(path: bool) -> str:
    """Columns learned a row."""
    return "N_ACTIONS" if path else "1"
