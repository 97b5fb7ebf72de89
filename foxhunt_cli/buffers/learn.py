"""Buffers of the networks and of the on-policy update. Rows of the update are r = t*B + b, t < T."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer

_ROWS_ALL = "(T+1), B"

ROWS = (
    Buffer("isv", "640", "float32", "persistent", "mixed", "the internal state vector"),
    Buffer("ones", "W*B", "float32", "data", "1", "a row of ones: column sums are products with it"),
    Buffer(
        "h",
        "(T+1), B, HIDDEN_DIM",
        "float32",
        "iteration",
        "1",
        "encoding before step t; slice T is the bootstrap state",
    ),
    Buffer("next_h", "B, HIDDEN_DIM", "float32", "iteration", "1", "encoding of the window behind the step, T = 1"),
    Buffer(
        "grad_h",
        "(T+1), B, HIDDEN_DIM",
        "float32",
        "iteration",
        "1",
        "gradient of the loss with respect to h; slice T unused",
    ),
    Buffer(
        "pi_all",
        "(T+1), B, P*N_ACTIONS",
        "float32",
        "iteration",
        "logits",
        "policy logits of every class, without bias",
    ),
    Buffer("v_all", "(T+1), B, P", "float32", "iteration", "1", "normalised values of every class, without bias"),
    Buffer("value", _ROWS_ALL, "float32", "iteration", "scaled", "value of the row's class"),
    Buffer("log_prob", "T, B", "float32", "iteration", "nats", "log-probability of the drawn action when it was drawn"),
    Buffer("advantage", "T, B", "float32", "iteration", "scaled", "GAE advantage, not normalised"),
    Buffer("value_target", "T, B", "float32", "iteration", "scaled", "advantage + value, bounded"),
    Buffer(
        "adv_moments",
        "6",
        "float32",
        "iteration",
        "mixed",
        "advantages: mean, 1/std, rows counted; returns: mean, mean square, how many are not finite",
    ),
    Buffer("pi_soft", "T, B, N_ACTIONS", "float32", "iteration", "1", "softmax of the row's class"),
    Buffer("log_ratio", "T, B", "float32", "iteration", "nats", "log p_new - log p_old of the drawn action"),
    Buffer("row_loss_pi", "T, B", "float32", "iteration", "1", "surrogate loss of the row"),
    Buffer("row_loss_v", "T, B", "float32", "iteration", "1", "value loss of the row"),
    Buffer("row_entropy", "T, B", "float32", "iteration", "nats", "entropy of the row's softmax"),
    Buffer("grad_pi_all", "T, B, P*N_ACTIONS", "float32", "iteration", "1", "gradient of the loss, every class"),
    Buffer("grad_v_all", "T, B, P", "float32", "iteration", "1", "gradient of the loss, every class"),
    Buffer(
        "chunk_square_policy",
        "N_POLICY_CHUNKS",
        "float32",
        "iteration",
        "1",
        "sum of squared gradients of 32 parameters",
    ),
    Buffer("chunk_square_critic", "N_CRITIC_CHUNKS", "float32", "iteration", "1", "the same of the critic's tensors"),
    *(
        Buffer(
            f"update_control_{span}",
            "14",
            "float32",
            "iteration",
            "mixed",
            "apply flag, clip factor, bias corrections a group",
        )
        for span in ("policy", "critic")
    ),
    Buffer(
        "adam_step",
        "2, 6",
        "uint32",
        "persistent",
        "updates",
        "updates done, by learning-rate group, of the policy's and of the critic's optimiser",
    ),
    Buffer("fault_policy", "2", "uint32", "persistent", "mixed", "consecutive refused updates, sticky stop flag"),
    Buffer("fault_critic", "2", "uint32", "persistent", "mixed", "the same of the critic's updates"),
)
