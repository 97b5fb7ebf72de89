"""Buffers of the networks and of the on-policy update. Rows of the update are r = t*B + b, t < T."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import ISV_SIZE


def _row(name: str, dtype: str, unit: str, meaning: str) -> Buffer:
    """One number a row of the update."""
    return Buffer(name, "T, B", dtype, "iteration", unit, meaning)


ROWS = (
    Buffer("isv", f"{ISV_SIZE}", "float32", "persistent", "mixed", "the internal state vector"),
    Buffer("ones", "W*B", "float32", "data", "1", "a row of ones: column sums are products with it"),
    Buffer("h", "(T+1), B, HIDDEN_DIM", "float32", "iteration", "1", "encoding before step t; slice T bootstraps"),
    Buffer("next_h", "B, HIDDEN_DIM", "float32", "iteration", "1", "encoding of the window behind the step, T = 1"),
    Buffer("grad_h", "(T+1), B, HIDDEN_DIM", "float32", "iteration", "1", "gradient of the loss; slice T is unused"),
    Buffer("pi_all", "(T+1), B, P*N_ACTIONS", "float32", "iteration", "logits", "logits of every class, without bias"),
    Buffer("v_all", "(T+1), B, P", "float32", "iteration", "1", "normalised values of every class, without bias"),
    Buffer("value", "(T+1), B", "float32", "iteration", "scaled", "value of the row's class"),
    _row("log_prob", "float32", "nats", "log-probability of the drawn action when it was drawn"),
    _row("advantage", "float32", "scaled", "GAE advantage, not normalised"),
    _row("value_target", "float32", "scaled", "advantage + value, bounded"),
    # Of the advantages: mean, 1 / std, rows counted; of the returns: mean, mean square, how many are not finite.
    Buffer("adv_moments", "6", "float32", "iteration", "mixed", "moments of the advantages and of the returns"),
    Buffer("pi_soft", "T, B, N_ACTIONS", "float32", "iteration", "1", "softmax of the row's class"),
    _row("log_ratio", "float32", "nats", "log p_new - log p_old of the drawn action"),
    _row("row_loss_pi", "float32", "1", "surrogate loss of the row"),
    _row("row_loss_v", "float32", "1", "value loss of the row"),
    _row("row_entropy", "float32", "nats", "entropy of the row's softmax"),
    Buffer("grad_pi_all", "T, B, P*N_ACTIONS", "float32", "iteration", "1", "gradient of the loss, every class"),
    Buffer("grad_v_all", "T, B, P", "float32", "iteration", "1", "gradient of the loss, every class"),
    Buffer("chunk_square_policy", "N_POLICY_CHUNKS", "float32", "iteration", "1", "squares of 32 gradients, summed"),
    Buffer("chunk_square_critic", "N_CRITIC_CHUNKS", "float32", "iteration", "1", "the same of the critic's tensors"),
    Buffer("update_control_policy", "14", "float32", "iteration", "mixed", "apply, clip, bias corrections by group"),
    Buffer("update_control_critic", "14", "float32", "iteration", "mixed", "the same of the critic's updates"),
    Buffer("adam_step", "2, 6", "uint32", "persistent", "updates", "updates by learning-rate group, policy, critic"),
    Buffer("fault_policy", "2", "uint32", "persistent", "mixed", "consecutive refused updates, sticky stop flag"),
    Buffer("fault_critic", "2", "uint32", "persistent", "mixed", "the same of the critic's updates"),
)
