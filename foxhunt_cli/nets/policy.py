"""The policy and value heads: one linear block per position class on a market-only encoding.

A row uses the block of its class and adds a linear term in the trade context. One product gives every class's
outputs for every encoding of the iteration, before a single action is chosen.

Where the encoding knows the position (``context = encoder``) there is one block, no context term (its weights stay
zero), and the states are encoded one by one.
"""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.nets.params import Parameter
from foxhunt_cli.pipeline.stage import Fused, Matmul, Stage, Step, View

_HEAD_GAIN = 0.1
# Initial logit of Hold. From a uniform start a position lives three steps: no step of the market can pay for its costs,
# and what is learned first, for good, is not to trade. With e^5 / (e^5 + 10) = 94 % Hold it lives some forty.
_HOLD_PRIOR = 5.0

PARAMETERS = (
    Parameter("w_pi", "HIDDEN_DIM, P*N_ACTIONS", "xavier", _HEAD_GAIN, "LR_PI"),
    Parameter("b_pi", "P*N_ACTIONS", "hold", _HOLD_PRIOR, "LR_PI"),
    Parameter("w_pi_ctx", "HEAD_CONTEXT_DIM, P*N_ACTIONS", "constant", 0.0, "LR_PI"),
    Parameter("w_v", "HIDDEN_DIM, P", "xavier", _HEAD_GAIN, "LR_V"),
    Parameter("b_v", "P", "constant", 0.0, "LR_V"),
    Parameter("w_v_ctx", "HEAD_CONTEXT_DIM, P", "constant", 0.0, "LR_V"),
)

_ALL, _USED = "(T+1)*B", "T*B"
_HEADS = {"pi": "P*N_ACTIONS", "v": "P"}
# The fused products (cuda_src/cuda_only/policy_heads_tf32.cu): most blocks, rows up to which small tiles keep more
# multiprocessors busy, numbers of a block.
_BLOCKS, FEW_ROWS = 132, 4096
_PART = "132*(112 if P <= 9 else 240)"

BUFFERS = (Buffer("policy_parts", f"{_BLOCKS}, {_PART}", "float32", "iteration", "1", "gradients of a block's rows"),)


def forward(rows: int) -> list[Fused]:
    """h [T+1, B, 128] -> pi_all, v_all of every class, without bias. rows: (T+1)*B, as a number."""
    h = View("h", _ALL, "HIDDEN_DIM")
    steps = tuple(
        Matmul(f"{head} head", h, View(f"w_{head}", "HIDDEN_DIM", width), View(f"{head}_all", _ALL, width))
        for head, width in _HEADS.items()
    )
    return [Fused((Stage("rl_policy_heads_tf32", {"rows": str(rows), "each": _tiles(rows)[0]}),), steps, tf32=True)]


def policy_at(t: int) -> list[Step]:
    """h[t] -> pi_all[t], the logits of state t alone."""
    return [_one_state("pi", "P*N_ACTIONS", t)]


def value_at(t: int) -> list[Step]:
    """h[t] -> v_all[t]."""
    return [_one_state("v", "P", t)]


def _one_state(head: str, width: str, t: int) -> Matmul:
    h, out = (View(name, "B", cols, row0=f"{t}*B") for name, cols in (("h", "HIDDEN_DIM"), (f"{head}_all", width)))
    return Matmul(f"{head} head of state {t}", h, View(f"w_{head}", "HIDDEN_DIM", width), out)


def draw(greedy: str = "0") -> Stage:
    """The policy draw of one environment step; ``t`` is bound by the caller."""
    return Stage("rl_pi_action_kernel", {"greedy": greedy})


def losses(*, again: bool = False) -> list[Step | Fused]:
    """Values, advantages, surrogate and value loss, with gradients of every class's outputs.

    again: a further pass over the same rows; what they are measured against (advantages, value targets) stays.
    """
    used, measured = {"rows": _USED}, {"moments": "adv_moments"}
    values = Stage("rl_value_rows", {"rows": _ALL})
    advantages = (values, Stage("gae_advantage"), Stage("rl_advantage_statistics", measured))
    rows = (
        Stage("ppo_clipped_surrogate_fwd", measured | used),
        Stage("ppo_clipped_surrogate_bwd", measured | used),
        Stage("rl_value_loss_grad", used),
        Stage("rl_loss_reduce", measured | used),
    )
    return [
        values
        if again
        else Fused(
            (Stage("rl_policy_advantages", measured | {"blocks_done": "advantages_done"}),), advantages, exact=True
        ),
        Fused((Stage("rl_policy_surrogate", measured | used | {"blocks_done": "losses_done"}),), rows, exact=True),
    ]


def backward(rows: int, *, first: bool, context: bool = True) -> Fused:
    """Gradients of the six tensors, and both heads' part of grad_h.

    rows: T*B, as a number. first: grad_h is overwritten, else added to. context False: the context terms' gradients are
    left alone (zero from the start), so the terms stay zero.
    """
    h, held, ones = View("h", _USED, "HIDDEN_DIM"), View("context", _USED, "HEAD_CONTEXT_DIM"), View("ones", "1", _USED)
    steps: list[Step] = []
    for head, width in _HEADS.items():
        grad, w = View(f"grad_{head}_all", _USED, width), View(f"w_{head}", "HIDDEN_DIM", width)
        grad_h, adds = View("grad_h", _USED, "HIDDEN_DIM"), not first or head != "pi"
        steps += [
            Matmul(f"{head} grad h", grad, w, grad_h, trans_b=True, accumulate=adds),
            Matmul(f"{head} grad w", h, grad, View(f"grad_w_{head}", "HIDDEN_DIM", width), trans_a=True),
            Matmul(f"{head} grad b", ones, grad, View(f"grad_b_{head}", "1", width)),
        ]
        if context:
            out = View(f"grad_w_{head}_ctx", "HEAD_CONTEXT_DIM", width)
            steps.append(Matmul(f"{head} grad w_ctx", held, grad, out, trans_a=True))
    each, blocks = _tiles(rows)
    launches = (
        Stage("rl_policy_backward_tf32", {"rows": str(rows), "each": each, "first": str(int(first))}),
        Stage("rl_policy_backward_reduce", {"terms": str(int(context)), "blocks": blocks}),
    )
    return Fused(launches, tuple(steps), tf32=True)


def _tiles(rows: int) -> tuple[str, str]:
    """Rows of a tile of the fused products, and how many blocks share the tiles."""
    each = "16" if rows <= FEW_ROWS else "(64 if P <= 9 else 16)"
    return each, f"({rows} + {each} - 1)/{each} if {rows} < {_BLOCKS}*{each} else {_BLOCKS}"
