"""All heads, whole, against PyTorch's automatic differentiation in float64: relative L2 of every gradient <= 1e-4."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.nets import c51, direction, distill, frd, iqn, outcome, target
from foxhunt_cli.nets.target import CriticBatch
from foxhunt_cli.oracles.base import Trial
from foxhunt_cli.oracles.head_rig import HeadRig, isv_values

torch = pytest.importorskip("torch", reason="the comparison with PyTorch needs torch (CPU wheel)")

BOUND = 1e-4  # relative L2 of float32 against float64, as specified
T, B, P, A, Z, R, N = 4, 6, 9, 11, 21, 24, 16
DIMS = {"T": T, "B": B, "P": P, "R": R, "N_TAU": N, "N_TARGET_CHUNKS": 1, "tick_value_usd": 12.5}
SLOTS = {
    "loss_lambda_bce": 1.2, "loss_lambda_q": 0.7, "loss_lambda_aux": 0.6, "frd_lambda": 0.4, "outcome_lambda": 0.3,
    "c51_v_max": 4.0, "c51_v_min": -3.0, "q_distill_lambda": 0.8, "q_distill_temperature": 0.5, "kl_ref_beta": 0.2,
    "kl_ref_hold": 0.5,
}  # fmt: skip
HEADS = (frd, direction, outcome, c51, iqn)


def _inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(21)
    states = {f"rng_{n}": rng.integers(1, 2**32, 128 + P * A * Z, np.uint32) for n in ("c51_noise", "c51_target_noise")}
    closed = rng.random((T, B)) < 0.5
    return {
        **states,
        "rng_tau": rng.integers(1, 2**32, N, np.uint32),
        "rng_tau_next": rng.integers(1, 2**32, N, np.uint32),
        "isv": isv_values(**SLOTS),
        "ones": np.ones((T + 1) * B),
        "ones_replay": np.ones(R + N),
        "h": rng.standard_normal((T + 1, B, 128)),
        "grad_h": np.zeros((T + 1, B, 128)),
        "frd_target": rng.integers(-1, 21, (T, B, 3)).astype(np.int8),
        "direction_target": rng.integers(-1, 2, (T, B, 3)).astype(np.int8),
        "position_class": rng.integers(0, P, (T + 1, B)).astype(np.int32),
        "closed": closed.astype(np.uint8),
        "closed_trade_pnl_usd": np.where(closed, 40.0 * rng.standard_normal((T, B)), 0.0),
        "closed_trade_lots": closed.astype(np.int32),
        "pi_all": rng.standard_normal((T + 1, B, P * A)),
        "b_pi": rng.standard_normal(P * A),
        "w_pi_ctx": rng.standard_normal((3, P * A)),
        "context": rng.standard_normal((T + 1, B, 3)),
        "grad_pi_all": np.zeros((T, B, P * A)),
        "replay_h": rng.standard_normal((R, 128)),
        "replay_next_h": rng.standard_normal((R, 128)),
        "replay_lots": rng.integers(-4, 5, R).astype(np.int8),
        "replay_next_lots": rng.integers(-4, 5, R).astype(np.int8),
        "replay_action": rng.integers(0, A, R).astype(np.int8),
        "replay_reward": rng.standard_normal(R),
        "replay_discount": rng.uniform(0.9, 1.0, R),
        "replay_terminal": (rng.random(R) < 0.2).astype(np.uint8),
        "is_weight": rng.uniform(0.1, 1.0, R),
        "path_return": rng.standard_normal((R, P * A)),
        "next_class": rng.integers(0, P, P * A).astype(np.int8),
    }


def _rig() -> HeadRig:
    parameters = [tensor for head in HEADS for tensor in head.PARAMETERS]
    buffers = [row for head in (*HEADS, distill, target) for row in head.BUFFERS]
    rig = HeadRig(Trial(CpuDevice()), parameters, buffers, DIMS, _inputs())
    rig.set("ensemble_q", np.random.default_rng(5).standard_normal((T, B, P * A)))
    return rig


def _leaf(rig: HeadRig, name: str) -> torch.Tensor:
    return torch.tensor(rig.get(name), dtype=torch.float64, requires_grad=True)


def _leaves(rig: HeadRig, head) -> dict[str, torch.Tensor]:
    return {tensor.name: _leaf(rig, tensor.name) for tensor in head.PARAMETERS}


def _long(rig: HeadRig, name: str) -> torch.Tensor:
    return torch.tensor(rig.get(name).astype(np.int64))


def _plain(rig: HeadRig, name: str) -> torch.Tensor:
    return torch.tensor(rig.get(name), dtype=torch.float64)


def _assert_close(name: str, want: torch.Tensor, got: np.ndarray) -> None:
    expected = want.detach().numpy().reshape(got.shape)
    distance = np.linalg.norm(expected - got) / np.linalg.norm(expected)
    assert np.linalg.norm(expected) > 0.0, f"{name}: the reference gradient is zero"
    assert distance <= BOUND, f"{name}: relative L2 {distance:.2e}, bound {BOUND:.0e}"


def _assert_head(rig: HeadRig, leaves: dict[str, torch.Tensor]) -> None:
    for name, leaf in leaves.items():
        _assert_close(f"grad_{name}", leaf.grad, rig.get(f"grad_{name}"))


def test_supervised_heads_match_autograd() -> None:
    """FRD, direction, outcome: gradients of every tensor, and their weighted sum at the encoding."""
    rig = _rig()
    rig.run([step for head in (frd, direction, outcome) for step in (*head.forward(), *head.loss_and_backward())])
    f, d, o = (_leaves(rig, head) for head in (frd, direction, outcome))
    h = torch.tensor(rig.get("h")[:T].reshape(T * B, 128), requires_grad=True)

    hidden = torch.relu(h @ f["w_frd1"] + f["b_frd1"])
    logits = (hidden @ f["w_frd2"] + f["b_frd2"]).view(-1, 21)
    loss_frd = torch.nn.functional.cross_entropy(logits, _long(rig, "frd_target").view(-1), ignore_index=-1)

    label = _long(rig, "direction_target").view(T * B, 3)
    x = h @ d["w_direction"] + d["b_direction"]
    bce = torch.nn.functional.binary_cross_entropy_with_logits(x, label.clamp(min=0).double(), reduction="none")
    loss_direction = bce[label >= 0].mean()

    outcomes = (h @ o["w_outcome"] + o["b_outcome"]).view(T * B, P, 3)
    own = outcomes[torch.arange(T * B), _long(rig, "position_class")[:T].view(-1)]
    loss_outcome = torch.nn.functional.cross_entropy(own, _long(rig, "outcome_target").view(-1), ignore_index=-1)

    parts = (
        (loss_frd, SLOTS["loss_lambda_aux"], SLOTS["frd_lambda"], f),
        (loss_direction, SLOTS["loss_lambda_bce"], 1.0, d),
        (loss_outcome, SLOTS["loss_lambda_aux"], SLOTS["outcome_lambda"], o),
    )
    grad_h = torch.zeros_like(h)
    for loss, weight, to_encoder, leaves in parts:
        grad_h += to_encoder * torch.autograd.grad(weight * loss, h, retain_graph=True)[0]
        (weight * loss).backward(retain_graph=True)
        _assert_head(rig, leaves)
    _assert_close("grad_h", grad_h, rig.get("grad_h")[:T])
    for slot, loss in (("LOSS_FRD", loss_frd), ("LOSS_BCE", loss_direction), ("LOSS_OUTCOME", loss_outcome)):
        assert rig.slot(slot) == pytest.approx(loss.item(), rel=1e-5)


def _project(prob: torch.Tensor, reward: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """Projection by the dense form: weight max(0, 1 - distance in atoms); prob [..., Z], reward and keep [...]."""
    low, high = SLOTS["c51_v_min"], SLOTS["c51_v_max"]
    atoms = torch.linspace(low, high, Z, dtype=torch.float64)
    place = (reward[..., None] + keep[..., None] * atoms).clamp(low, high)
    place = (place - low) / (high - low) * (Z - 1)
    near = (1.0 - (place[..., :, None] - torch.arange(Z)).abs()).clamp(min=0.0)
    return (near * prob[..., :, None]).sum(-2)


def _c51_logits(rig: HeadRig, weights: dict[str, torch.Tensor], noise: str, h: torch.Tensor) -> torch.Tensor:
    eps = _plain(rig, noise)
    w = weights["w_c51"] + weights["sw_c51"] * eps[:128, None] * eps[128:]
    return (h @ w + weights["b_c51"] + weights["sb_c51"] * eps[128:]).view(R, P, A, Z)


@pytest.mark.parametrize("path", [True, False], ids=["path targets", "executed action"])
def test_c51_matches_autograd(path: bool) -> None:
    """Noisy C51 with double DQN: all four tensors, and the encoding where the critic's gradient is asked for."""
    rig, batch = _rig(), CriticBatch()
    rig.set("grad_h", np.zeros((R, 128)))
    rig.run([*c51.draw_noise(), *c51.compose_noise(), *c51.forward(batch)])
    rig.run(c51.loss_and_backward(batch, 0, path=path, grad_h="grad_h"))

    leaves, h = _leaves(rig, c51), _leaf(rig, "replay_h")
    frozen = {name: _plain(rig, f"target_{name}") for name in leaves}
    atoms = torch.linspace(SLOTS["c51_v_min"], SLOTS["c51_v_max"], Z, dtype=torch.float64)
    keep = _plain(rig, "replay_discount") * (1 - _long(rig, "replay_terminal"))
    rows = torch.arange(R)
    with torch.no_grad():
        next_h = _plain(rig, "replay_next_h")
        best = (torch.softmax(_c51_logits(rig, leaves, "c51_noise", next_h), -1) @ atoms).argmax(-1)
        prob = torch.softmax(_c51_logits(rig, frozen, "c51_target_noise", next_h), -1)
        prob = prob[rows[:, None], torch.arange(P), best]
        if path:
            mass = prob[:, _long(rig, "next_class")]
            mass = _project(mass, _plain(rig, "path_return"), keep[:, None].expand(R, P * A)).view(R, P, A, Z)
        else:
            after = prob[rows, _long(rig, "replay_next_lots") + P // 2]
            mass = _project(after, _plain(rig, "replay_reward"), keep)
    log_prob = torch.log_softmax(_c51_logits(rig, leaves, "c51_noise", h), -1)
    if path:
        td = -(mass * log_prob).sum(-1).mean((1, 2))
    else:
        td = -(mass * log_prob[rows, _long(rig, "replay_lots") + P // 2, _long(rig, "replay_action")]).sum(-1)
    (SLOTS["loss_lambda_q"] * (_plain(rig, "is_weight") * td).mean()).backward()
    _assert_close("c51_td", td, rig.get("c51_td"))
    _assert_head(rig, leaves)
    _assert_close("grad_h", h.grad, rig.get("grad_h"))


def _iqn_quantiles(weights: dict[str, torch.Tensor], h: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    """[R, taus, P, A]."""
    cosines = torch.cos(torch.pi * torch.arange(64, dtype=torch.float64) * tau[:, None])
    phi = torch.relu(cosines @ weights["w_iqn_phi"] + weights["b_iqn_phi"])
    return ((h[:, None] * phi) @ weights["w_iqn"] + weights["b_iqn"]).view(R, len(tau), P, A)


@pytest.mark.parametrize("path", [True, False], ids=["path targets", "executed action"])
def test_iqn_matches_autograd(path: bool) -> None:
    """Quantile Huber, pairwise over taus, targets from the target head at the online head's own choice."""
    rig, batch = _rig(), CriticBatch()
    rig.run([*iqn.draw_taus(), *iqn.embed_taus(), *iqn.forward(batch, path=path)])
    rig.set("grad_h", np.zeros((R, 128)))
    rig.run(iqn.loss_and_backward(batch, path=path, grad_h="grad_h"))

    leaves, h = _leaves(rig, iqn), _leaf(rig, "replay_h")
    frozen = {name: _plain(rig, f"target_{name}") for name in leaves}
    keep = _plain(rig, "replay_discount") * (1 - _long(rig, "replay_terminal"))
    rows, lots = torch.arange(R), _long(rig, "replay_lots") + P // 2
    with torch.no_grad():
        next_h = _plain(rig, "replay_next_h")
        middle = (torch.arange(N, dtype=torch.float64) + 0.5) / N
        best = _iqn_quantiles(leaves, next_h, middle).mean(1).argmax(-1)
        z_next = _iqn_quantiles(frozen, next_h, _plain(rig, "iqn_tau_next"))
        if path:
            after = _long(rig, "next_class").view(P, A)[lots]
            reward = _plain(rig, "path_return").view(R, P, A)[rows, lots]
        else:
            after = (_long(rig, "replay_next_lots") + P // 2)[:, None]
            reward = _plain(rig, "replay_reward")[:, None]
        z_next = z_next[rows[:, None], :, after, best[rows[:, None], after]]
        goal = reward[..., None] + keep[:, None, None] * z_next
    tau = _plain(rig, "iqn_tau")
    z = _iqn_quantiles(leaves, h, tau)[rows, :, lots].transpose(1, 2)
    if not path:
        z = z[rows, _long(rig, "replay_action")][:, None]
    delta = goal[:, :, None, :] - z[..., None]
    huber = torch.where(delta.abs() <= 1.0, 0.5 * delta**2, delta.abs() - 0.5)
    loss = ((tau[:, None] - (delta.detach() < 0).double()).abs() * huber).mean(-1).sum(-1).mean(1)
    (SLOTS["loss_lambda_q"] * (_plain(rig, "is_weight") * loss).mean()).backward()
    _assert_close("row_loss_iqn", loss, rig.get("row_loss_iqn"))
    _assert_head(rig, leaves)
    _assert_close("grad_h", h.grad, rig.get("grad_h"))


@pytest.mark.parametrize("all_classes", [True, False], ids=["all classes", "own class"])
def test_distillation_matches_autograd(all_classes: bool) -> None:
    """Distillation and reference KL at the policy's logits."""
    rig = _rig()
    rig.run(distill.gradients(all_classes=all_classes))
    logits = torch.tensor(rig.get("pi_all")[:T].reshape(T * B, P * A), requires_grad=True)
    context = torch.tensor(rig.get("context")[:T].reshape(T * B, 3))
    full = (logits + _plain(rig, "b_pi") + context @ _plain(rig, "w_pi_ctx")).view(T * B, P, A)
    log_pi, q = torch.log_softmax(full, -1), _plain(rig, "ensemble_q").view(T * B, P, A)
    rows, own = torch.arange(T * B), _long(rig, "position_class")[:T].view(-1)
    scale = (q.max(-1).values - q.mean(-1)).mean() if all_classes else 1.0
    wanted = torch.softmax(q / (SLOTS["q_distill_temperature"] * scale), -1)
    kl = (wanted * (wanted.log() - log_pi)).sum(-1)
    kl = kl.mean(1) if all_classes else kl[rows, own]
    reference = torch.full((A,), 0.05, dtype=torch.float64)
    reference[2] = 0.5
    kl_reference = (reference * (reference.log() - log_pi[rows, own])).sum(-1)
    (SLOTS["q_distill_lambda"] * kl.mean() + SLOTS["kl_ref_beta"] * kl_reference.mean()).backward()
    _assert_close("row_distill", kl, rig.get("row_distill"))
    _assert_close("grad_pi_all", logits.grad, rig.get("grad_pi_all"))
