"""The peer's environment step: against our engine's own accounts, and by what must hold of any account."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_cli.bench.setup import open_device, open_market
from foxhunt_cli.config.load import load_config
from foxhunt_cli.train.engine import build_engine, start_isv
from foxhunt_cli.train.prepare import prepare_training

torch = pytest.importorskip("torch", reason="the peer of bench peers needs torch (foxhunt[dev])")

from foxhunt_cli.bench import peer_account, peer_market  # noqa: E402
from foxhunt_cli.bench.peer_account import Account, Quote  # noqa: E402
from foxhunt_cli.bench.peer_rules import Rules, Sizes  # noqa: E402

HOLD = 2
SETS = (
    "device=cpu", "cpu_threads=1", "batch=24", "rollout=32", "episode_len=64", "encoder=mlp", "updates=0",
    "synthetic.snapshots=20000", "isv.p_min=0.05",
)  # fmt: skip


@pytest.fixture(scope="module")
def played():
    """Two iterations of ours from flat accounts, the second one the last of an episode: arrays by name, [64, B]."""
    config = load_config(sets=list(SETS))
    device, market = open_device(config), open_market(config)
    data = prepare_training(device, market, config)
    engine = build_engine(device, config, data)
    isv = start_isv(config, data)
    names = (
        "action", "position_after", "pnl_step_usd", "closed", "closed_trade_pnl_usd", "closed_trade_lots", "fill_lots",
        "fill_vwap", "context",
    )  # fmt: skip
    parts: dict[str, list[np.ndarray]] = {name: [] for name in (*names, "cursor")}
    for _ in range(2):
        engine.iterate()
        for name in names:
            value = device.download(engine.arrays[name])
            parts[name].append(value[1:] if name == "context" else value)
        parts["cursor"].append(device.download(engine.arrays["cursor"]) - config.rollout)
    arrays = {name: np.concatenate(value) for name, value in parts.items() if name != "cursor"}
    table = peer_market.load(device, engine.arrays, torch.device("cpu"))
    lots = torch.tensor(peer_market.next_class(device, isv, int(engine.dims["lot_limit"])) - engine.dims["lot_limit"])
    sizes = Sizes.of({"R": 1, "C": 1024, **engine.dims}, 1)
    return arrays, torch.tensor(parts["cursor"][0]).long(), table, lots.float(), Rules.of(isv), sizes


def replayed(played) -> tuple[dict[str, np.ndarray], list[Account], np.ndarray]:
    """The peer's account under our executed actions, and the rows whose every fill was at the best price."""
    arrays, cursor, market, next_lots, rules, sizes = played
    account = peer_account.flat(sizes.B, torch.device("cpu"))
    found: dict[str, list] = {name: [] for name in ("lots", "pnl", "closed", "trade", "most", "context")}
    accounts = []
    best = np.ones(sizes.B, bool)
    for t, action in enumerate(torch.tensor(arrays["action"]).long()):
        at = cursor + t
        last = torch.full((sizes.B,), t == len(arrays["action"]) - 1)
        quote = Quote(market.mid[at], market.bid[at + 1], market.ask[at + 1], market.mid[at + 1], at * 0.0, last)
        wanted = next_lots[account.lots.long() + sizes.lot_limit].gather(1, action[:, None])[:, 0]
        account, closed, trade, most, pnl = peer_account.fill(
            account, torch.where(last, 0.0, wanted), quote, rules, sizes
        )
        touch = np.where(arrays["fill_lots"][t] > 0, quote.ask.numpy(), quote.bid.numpy())
        best &= (arrays["fill_lots"][t] == 0) | (arrays["fill_vwap"][t] == touch)
        context = peer_account.trade_context(account, quote.next_mid)
        for name, value in zip(found, (account.lots, pnl, closed, trade, most, context), strict=True):
            found[name].append(value.numpy())
        accounts.append(account)
    return {name: np.stack(value) for name, value in found.items()}, accounts, best


def test_our_actions_give_our_positions_and_pnl(played) -> None:
    arrays = played[0]
    found, _, best = replayed(played)
    assert best.sum() >= 12 and (arrays["closed"][:, best] > 0).sum() >= 30, "nothing to compare"
    np.testing.assert_array_equal(found["lots"][:, best], arrays["position_after"][:, best])
    np.testing.assert_array_equal(found["closed"][:, best], arrays["closed"][:, best].astype(bool))
    np.testing.assert_array_equal(found["most"][:, best], arrays["closed_trade_lots"][:, best])
    # USD; float32 sums of prices of up to some thousand ticks
    np.testing.assert_allclose(found["pnl"][:, best], arrays["pnl_step_usd"][:, best], atol=1e-2)
    np.testing.assert_allclose(found["trade"][:, best], arrays["closed_trade_pnl_usd"][:, best], atol=5e-2)
    np.testing.assert_allclose(found["context"][:-1, best, 0], arrays["context"][:-1, best, 0], atol=1e-6)


def test_equity_is_the_sum_of_its_changes_and_an_episode_ends_flat(played) -> None:
    _, cursor, market, _, _, sizes = played
    found, accounts, _ = replayed(played)
    end = accounts[-1]
    assert float(end.lots.abs().max()) == 0.0 and float(end.basis.abs().max()) == 0.0
    for t in (20, 63):
        a, mid = accounts[t], market.mid[cursor + t + 1]
        equity = (a.cash + a.lots * mid) * sizes.tick_value_usd - a.sides * sizes.fee_usd
        np.testing.assert_allclose(equity.numpy(), found["pnl"][: t + 1].sum(0), atol=0.5)
    realised = found["trade"].sum(0)
    np.testing.assert_allclose(realised, found["pnl"].sum(0), atol=0.5)


def test_draws_follow_the_floored_softmax() -> None:
    torch.manual_seed(0)
    logits = torch.tensor([[2.0, 0.0, -1.0, *[0.0] * 8]])
    race = torch.empty(200_000, 11).exponential_()
    action, log_prob = peer_account.act(logits.expand(len(race), -1), race, p_min=0.01)
    wanted = 0.01 + 0.89 * torch.softmax(logits[0], -1)
    share = torch.bincount(action, minlength=11) / len(race)
    # five standard errors of a share
    assert bool(((share - wanted).abs() <= 5 * (wanted * (1 - wanted) / len(race)).sqrt()).all())
    torch.testing.assert_close(log_prob, torch.log(wanted)[action])


@pytest.mark.parametrize("realised", [False, True])
def test_advantages_are_those_of_the_backward_sweep(played, realised: bool) -> None:
    rules, sizes = played[4], played[5]
    sizes = Sizes(**{**vars(sizes), "realised_reward": realised})
    steps = 1 if realised else 32
    generator = torch.Generator().manual_seed(1)
    reward, value = (torch.randn(n, 3, generator=generator, dtype=torch.float64) for n in (steps, steps + 1))
    closed = torch.rand(steps, 3, generator=generator) < 0.5
    advantage, target = peer_account.advantages(reward, value, closed, rules, sizes)
    carried = torch.zeros(3, dtype=torch.float64)
    for t in range(steps - 1, -1, -1):
        keep = rules.gamma * ~closed[t] if realised else rules.gamma
        carried = reward[t] + keep * value[t + 1] - value[t] + keep * rules.gae_lambda * carried
        torch.testing.assert_close(advantage[t], carried)
        torch.testing.assert_close(target[t], (carried + value[t]).clamp(-rules.v_target_clamp, rules.v_target_clamp))
