"""One whole training iteration of ours against PyTorch's automatic differentiation, through the bench's peer.

An engine plays and learns one iteration; the peer gets the same weights, windows, draws and replay batch in float64 and
must find the same losses and the same gradient of every tensor. Then the same for a peer's own account and targets.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from foxhunt_cli.bench.setup import open_device, open_engine, open_market
from foxhunt_cli.cli.console import Terminal
from foxhunt_cli.config.load import load_config
from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.isv.table import number
from foxhunt_cli.nets.encoder_full import PARAMETERS as ENCODER
from foxhunt_cli.nets.params import initial_values, lay_out
from foxhunt_cli.oracles.encoder_rig import EncoderRig
from foxhunt_cli.train.engine import Engine

torch = pytest.importorskip("torch", reason="gradients were NOT compared with autograd: install torch (foxhunt[dev])")

from foxhunt_cli.bench import peer_critic, peer_heads, peer_market, peer_weights  # noqa: E402
from foxhunt_cli.bench.peer_encoder import Encoder  # noqa: E402
from foxhunt_cli.bench.peer_rules import Rules, Sizes  # noqa: E402

# float32 against float64, relative L2 of a whole tensor. Measured: 1e-6 to 7e-6 for the encoder by itself.
ENCODER_BOUND = 1e-4
# The same through heads, losses and encoder. Measured: 6e-7 to 5e-6 for the worst tensor of either preset.
ITERATION_BOUND = 1e-4
SMALL = (
    "device=cpu", "cpu_threads=1", "batch=6", "updates=1", "replay_batch=32", "synthetic.snapshots=20000",
    "controllers.atom_span=fixed",
)  # fmt: skip
FORMS = {"foxhunt": ("rollout=12",), "seed": ("preset=seed", "replay_batch=24", "isv.iqn_n_tau=8")}


def distance(want: np.ndarray, got: np.ndarray) -> float:
    """Relative L2; absolute where nothing is expected."""
    return float(np.linalg.norm(got.reshape(want.shape) - want) / (np.linalg.norm(want) or 1.0))


def as_is(function):
    return function


class Played:
    """An engine's iteration: weights before it, everything it read and wrote."""

    def __init__(self, *sets: str) -> None:
        config = load_config(sets=[*SMALL, *sets])
        self.engine: Engine = open_engine(open_device(config), config, open_market(config), Terminal(quiet=True))
        self.config = config
        names = self.engine.layout.offsets
        self.weights = {name: self.get(name) for name in names}
        self.target = {name: self.get(f"target_{name}") for name in names if f"target_{name}" in self.engine.arrays}
        before = self.get("isv")
        self.engine.iterate()
        isv = self.get("isv")
        popart = [number("POPART_MEAN"), number("POPART_SECOND_MOMENT")]
        isv[popart] = before[popart]  # they move behind the losses
        self.isv, self.rules = isv, Rules.of(isv)
        self.sizes = Sizes.of(self.engine.dims, config.updates)
        self.shapes = peer_weights.shapes_of(self.engine.layout)

    def get(self, name: str) -> np.ndarray:
        return self.engine.device.download(self.engine.arrays[name])

    def floats(self, name: str) -> torch.Tensor:
        return torch.tensor(self.get(name).astype(np.float64))

    def whole(self, name: str) -> torch.Tensor:
        return torch.tensor(self.get(name).astype(np.int64))

    def packed(self, values: Mapping[str, np.ndarray], names: list[str]) -> peer_weights.Weights:
        packed = peer_weights.pack({name: torch.tensor(values[name].astype(np.float64)) for name in names})
        return {name: value.requires_grad_() for name, value in packed.items()}

    def assert_gradients(self, loss: torch.Tensor, packed: peer_weights.Weights) -> None:
        grads = torch.autograd.grad(loss, list(packed.values()), allow_unused=True)
        found = {n: w if g is None else g for (n, w), g in zip(packed.items(), grads, strict=True)}
        ours = peer_weights.unpack(found, self.shapes)
        distances = {n: distance(g.detach().numpy(), self.get(f"grad_{n}")) for n, g in ours.items()}
        worst = max(distances, key=distances.get)
        print(f"{self.config.preset}: worst of {len(distances)} tensors: {worst} {distances[worst]:.1e}")
        assert all(d <= ITERATION_BOUND for d in distances.values()), distances


@pytest.fixture(scope="module", params=sorted(FORMS))
def played(request) -> Played:
    return Played(*FORMS[request.param])


@pytest.mark.parametrize(("B", "T", "K"), [(1, 16, 32), (5, 16, 32), (33, 4, 32), (4, 1, 1)])
def test_encoder_matches_autograd(B: int, T: int, K: int) -> None:
    rig = EncoderRig(CpuDevice(threads=1), W=K + T, T=T, B=B, seed=B + T)
    rig.run("forward", "backward")
    p = {name: torch.tensor(w, requires_grad=True) for name, w in rig.weights().items()}
    x, gap = torch.tensor(rig.get("x")).transpose(0, 1), torch.tensor(rig.get("gap"))
    h = Encoder(as_is)(p, x, gap, T + 1, learned=K + T - 1)
    assert distance(h.detach().numpy(), rig.get("h")) <= ENCODER_BOUND
    (h[:T] * torch.tensor(rig.get("grad_h")[:T])).sum().backward()
    distances = {name: distance(w.grad.numpy(), rig.get(f"grad_{name}")) for name, w in p.items()}
    assert all(d <= ENCODER_BOUND for d in distances.values()), distances


def test_the_peers_own_cfc_backward_matches_autograd() -> None:
    """The backward that is written by hand for speed, against plain autograd through the same cells."""
    dims, states, learned = {"B": 3}, 4, 5
    layout = lay_out(ENCODER, dims)
    p = {n: torch.tensor(layout.view(initial_values(layout, 1), n), dtype=torch.float64) for n in layout.offsets}
    generator = torch.Generator().manual_seed(3)
    x, gap = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((3, 6, 56), (6, 3)))
    weight = torch.randn(states, 3, 128, generator=generator, dtype=torch.float64)
    weight[-1] = 0.0  # the bootstrap state carries none
    by_hand, plain = ({n: w.clone().requires_grad_() for n, w in p.items()} for _ in range(2))
    (Encoder(as_is)(by_hand, x, gap.abs(), states, learned) * weight).sum().backward()
    (plain_encode(plain, x, gap.abs(), states) * weight).sum().backward()
    for name, w in plain.items():
        torch.testing.assert_close(by_hand[name].grad, w.grad, rtol=1e-9, atol=1e-12, msg=name)


def plain_encode(p: peer_weights.Weights, x: torch.Tensor, gap: torch.Tensor, states: int) -> torch.Tensor:
    from foxhunt_cli.bench.peer_encoder import AMPLITUDE, SLOPE, H, trunk

    pre, out = trunk(p, x), []
    h = torch.zeros_like(pre[0])
    for now, elapsed in zip(pre, gap, strict=True):
        u = AMPLITUDE * torch.tanh(SLOPE * (now + h @ p["w_cfc_backbone"][H:]))
        f, g, rate, offset = (u @ p["w_cfc_gates"] + p["b_cfc_gates"]).chunk(4, -1)
        s = torch.sigmoid(offset - rate * elapsed[:, None])
        h = torch.tanh(f) * s + torch.tanh(g) * (1 - s)
        out.append(h)
    return torch.stack(out[-states:])


def encoded(played: Played, p: peer_weights.Weights) -> torch.Tensor:
    """Encodings [T, B, 128] of the states that learn."""
    s = played.sizes
    x, gap = played.floats("x").transpose(0, 1), played.floats("gap")
    if s.P == 1:
        return Encoder(as_is)(p, x[:, : s.K], gap[: s.K], 1, learned=s.K)
    return Encoder(as_is)(p, x, gap, s.T + 1, learned=s.K + s.T - 1)[: s.T]


def rows_of(played: Played) -> peer_heads.Rows:
    """What our on-policy losses learned from, as the peer takes it."""
    s, n = played.sizes, played.sizes.T * played.sizes.B
    block = played.whole("position_class")[: s.T].flatten() if s.P > 1 else torch.zeros(n, dtype=torch.int64)
    counted = ~played.whole("overridden").bool() if played.config.mask_overridden else torch.ones(n, dtype=torch.bool)
    return peer_heads.Rows(
        block=block, action=played.whole("action_drawn").flatten(), log_prob=played.floats("log_prob").flatten(),
        counted=counted.flatten(), context=played.floats("context")[: s.T].reshape(n, 3),
        advantage=played.floats("advantage").flatten(), value_target=played.floats("value_target").flatten(),
        ensemble_q=played.floats("ensemble_q").view(n, s.P, 11), frd=played.whole("frd_target").view(n, 3),
        direction=played.whole("direction_target").view(n, 3), outcome=played.whole("outcome_target").flatten(),
    )  # fmt: skip


def test_on_policy_losses_and_gradients_match_autograd(played: Played) -> None:
    policy, _ = peer_weights.spans(played.engine.layout)
    p = played.packed(played.weights, policy)
    shares = peer_heads.encoder_shares(played.sizes, played.rules, p["b_heads"])
    out = peer_heads.head_outputs(p, encoded(played, p).flatten(0, 1), shares)
    same, s = None, played.sizes
    if s.P > 1:
        same = peer_heads.alike(torch.tensor(peer_market.next_class(played.engine.device, played.isv, s.lot_limit)))
    loss, parts = peer_heads.policy_loss(out, p, rows_of(played), played.rules, s, same)
    named = dict(zip(peer_heads.PARTS, parts.tolist(), strict=True))
    slots = {"value": "LOSS_V", "distillation": "LOSS_DISTILL", "frd": "LOSS_FRD", "direction": "LOSS_BCE"}
    for part, slot in slots.items():
        assert named[part] == pytest.approx(float(played.isv[number(slot)]), rel=1e-4), part
    # A mean of normalised advantages: nothing but rounding is left of it at ratio 1.
    assert named["surrogate"] == pytest.approx(float(played.isv[number("LOSS_PI")]), abs=1e-5)
    if played.sizes.P == 1:  # no context term: its weights take no part
        p.pop("w_context")
    played.assert_gradients(loss, p)


def critic_inputs(played: Played) -> tuple[peer_critic.Batch, peer_critic.Draws]:
    s, rules = played.sizes, played.rules
    path = s.P > 1
    lots = played.whole("replay_lots")
    keep = played.floats("path_discount" if path else "replay_discount") * (played.whole("replay_terminal") == 0)
    batch = peer_critic.Batch(
        played.floats("replay_h"), played.floats("replay_next_h"), lots + s.lot_limit if path else lots * 0,
        played.whole("replay_action"), played.floats("path_return" if path else "replay_reward"), keep,
        played.floats("is_weight"),
    )  # fmt: skip
    noises = [played.floats(name) for name in ("c51_noise", "c51_target_noise")]
    noises = [torch.nn.functional.pad(noise, (0, -(len(noise) - 128) % peer_weights.WIDTH)) for noise in noises]
    assert rules.c51_v_max > rules.c51_v_min
    return batch, peer_critic.Draws(*noises, played.floats("iqn_tau"), played.floats("iqn_tau_next"))


def test_critic_losses_and_gradients_match_autograd(played: Played) -> None:
    _, critic = peer_weights.spans(played.engine.layout)
    p, target = played.packed(played.weights, critic), played.packed(played.target, critic)
    batch, draws = critic_inputs(played)
    if played.sizes.P > 1:
        classes = torch.tensor(peer_market.next_class(played.engine.device, played.isv, played.sizes.lot_limit))
        c51, iqn = peer_critic.path_losses(p, target, batch, draws, classes, played.rules, played.sizes)
    else:
        c51, iqn = peer_critic.executed_losses(p, target, batch, draws, played.rules, played.sizes)
    assert distance(c51.detach().numpy(), played.get("c51_td")) <= ITERATION_BOUND
    assert iqn.mean().item() == pytest.approx(float(played.isv[number("LOSS_IQN")]), rel=1e-4)
    played.assert_gradients(peer_critic.critic_loss(c51, iqn, batch.weight, played.rules), p)


def test_ensemble_values_match(played: Played) -> None:
    _, critic = peer_weights.spans(played.engine.layout)
    s, features = played.sizes, "target_h" if played.sizes.P > 1 else "h"
    with torch.no_grad():
        p = played.packed(played.weights, critic)
        got = peer_critic.ensemble(p, played.floats(features)[: s.T].flatten(0, 1), played.rules, s)
    np.testing.assert_allclose(got.numpy().reshape(-1), played.get("ensemble_q").reshape(-1), rtol=1e-4, atol=1e-4)


def test_path_returns_match_where_the_best_level_is_deep_enough() -> None:
    """The peer pays half the spread, ours walks the book: equal where one level holds the largest order."""
    played = Played(*FORMS["foxhunt"])
    market = peer_market.load(played.engine.device, played.engine.arrays, torch.device("cpu"))
    s, index = played.sizes, played.whole("replay_index")
    classes = torch.tensor(peer_market.next_class(played.engine.device, played.isv, s.lot_limit))
    got = peer_critic.path_returns(index, market, (classes - s.lot_limit).float(), played.rules, s).numpy()
    sizes = np.minimum(*(played.get(f"{side}_sz")[index.numpy() + 1, 0] for side in ("bid", "ask")))
    usable = (sizes >= 2 * s.lot_limit) & (played.get("replay_n") == int(played.rules.n_step))
    assert usable.sum() >= 8
    np.testing.assert_allclose(got[usable], played.get("path_return")[usable], rtol=1e-4, atol=1e-4)


def test_packing_is_undone_and_pads_with_zeros() -> None:
    played = Played(*FORMS["foxhunt"])
    names = list(played.weights)
    packed = {n: w.detach() for n, w in played.packed(played.weights, names).items()}
    back = peer_weights.unpack(packed, played.shapes)
    assert set(back) == set(names)
    for name, value in back.items():
        np.testing.assert_array_equal(value.numpy(), played.weights[name], err_msg=name)
    assert all(packed[whole].shape[-1] % peer_weights.WIDTH == 0 for whole in peer_weights.PACKS)
    assert float(packed["w_c51"][:, -1].abs().sum()) == 0.0
