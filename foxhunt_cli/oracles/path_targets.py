"""Path targets against the environment itself: what R(p, a) says is what the fill simulator pays."""

from __future__ import annotations

import itertools

import numpy as np

from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import HOLD, QUIET, Market, Rig, isv_vector, ladder, random_market
from foxhunt_cli.oracles.replay_rig import ReplayRig
from foxhunt_cli.replay import path_targets

TICK, FEE = 12.5, 2.0
MILLITICK = 1e-3  # of one lot, in ticks: R is divided by scale and tick value before it is compared
GAMMA, SCALE = 0.97, 0.01
LIMIT, CLASSES, ACTIONS = 4, 9, 11
# Mirror images: position p <-> -p, action a <-> _MIRROR[a], bid <-> ask with the sign of prices turned.
_MIRROR = (6, 5, 2, 4, 3, 1, 0, 7, 8, 10, 9)


def path_returns(
    trial: Trial, market: Market, index: list[int], n: list[int], latency: int, **isv: float
) -> np.ndarray:
    """R(p, a) in ticks, [samples, classes, actions], by the kernels."""
    values = {**QUIET, "GAMMA": GAMMA, "REWARD_SCALE": SCALE, **isv}
    scalars = {"latency": latency, "tick_value_usd": TICK, "fee_usd": FEE}
    rig = ReplayRig(
        trial.device, batch=1, rollout=1, capacity=1024, rows=len(index), isv=values, scalars=scalars, lot_limit=LIMIT
    )
    for name in ("bid_px", "bid_sz", "ask_px", "ask_sz"):
        rig.add(name, getattr(market, name))
    rig.set(replay_index=index, replay_n=n)
    rig.run([*path_targets.table(), *path_targets.targets()])
    trial.close("discount is gamma^n", GAMMA ** np.array(n), rig.get("path_discount"), 1e-5)
    return rig.get("path_return").reshape(len(index), CLASSES, ACTIONS).astype(np.float64) / (SCALE * TICK)


def _played(trial: Trial, market: Market, index: list[int], n: int, latency: int) -> tuple[np.ndarray, np.ndarray]:
    """Discounted PnL in ticks and final lots of each action from each position, then Hold, by the environment.

    One row of accounts an (index, class, action); shapes [samples, classes, actions].
    """
    cells = (len(index), CLASSES, ACTIONS)
    lots = np.broadcast_to(np.arange(CLASSES)[None, :, None] - LIMIT, cells).reshape(-1)
    rig = Rig(trial.device, market, np.repeat(index, CLASSES * ACTIONS), n, scalars={"latency": latency})
    held, entry = lots != 0, np.repeat([np.floor(market.mid(i)) for i in index], CLASSES * ACTIONS)
    first_unit = (np.arange(4) == 0)[None, :] * held[:, None]
    rig.hold_position(1, [(100.0, 1)])
    rig.set(
        position_lots=lots, entry_basis=lots * entry, cash_ticks=-lots * entry, trade_open_step=held,
        trade_lots_max=np.abs(lots), trade_best_mid=held * entry, trade_entry_mid=held * entry,
        unit_entry=first_unit * entry[:, None], unit_best_mid=first_unit * entry[:, None],
        unit_lots=first_unit * np.abs(lots)[:, None], unit_trail=first_unit * 1e5, unit_initial_r=first_unit * 1e5,
        unit_age=first_unit,
    )  # fmt: skip
    actions = np.full((n, len(lots)), HOLD)
    actions[0] = np.broadcast_to(np.arange(ACTIONS), cells).reshape(-1)
    got = rig.play(actions)
    weights = GAMMA ** np.arange(n)
    pnl = (got["pnl_step_usd"].astype(np.float64) * weights[:, None]).sum(axis=0) / TICK
    return pnl.reshape(cells), got["position_after"][-1].reshape(cells)


@oracle("hindsight")
def hindsight_path_equals_fill_simulator(trial: Trial) -> None:
    """Every class and action, executed in random books and held for n steps; latencies 0, 1, 3."""
    rng = np.random.default_rng(11)
    market = random_market(rng, 120, gaps=False)
    table = trial.run("rl_path_next_class", _table_arrays(), P=CLASSES)["next_class"]
    index = [7, 23, 40, 71]
    for latency, n in ((0, 1), (0, 8), (1, 1), (1, 8), (3, 3), (3, 8), (1, 32), (3, 32)):
        label = f"latency {latency}, n {n}"
        want, lots = _played(trial, market, index, n, latency)
        got = path_returns(trial, market, index, [n] * len(index), latency)
        trial.close(label, want, got, MILLITICK)
        trial.equal(f"{label}: class", lots + LIMIT, np.broadcast_to(table, lots.shape))


def _table_arrays(**isv: float) -> dict[str, np.ndarray]:
    return {"isv": isv_vector(**{**QUIET, **isv}), "next_class": np.zeros((CLASSES, ACTIONS), np.int8)}


@oracle("hindsight")
def hindsight_path_flat_gives_minus_the_cost(trial: Trial) -> None:
    """Prices that do not move: half spread and fee of the lots traded, at the weight of the fill's step."""
    market = ladder([100] * 60, spread=2, size=50.0)
    table = trial.run("rl_path_next_class", _table_arrays(), P=CLASSES)["next_class"].astype(int)
    traded = np.abs(table - np.arange(CLASSES)[:, None])
    for latency in (0, 1, 3):
        got = path_returns(trial, market, [5], [8], latency)
        cost = traded * (1.0 + FEE / TICK) * GAMMA ** max(latency - 1, 0)
        trial.close(f"latency {latency}", -cost, got[0], MILLITICK)


@oracle("hindsight")
def hindsight_path_sign_flip_antisymmetry(trial: Trial) -> None:
    """The market turned upside down pays the opposite position what the market paid: R(p, a) = R'(-p, mirror a)."""
    rng = np.random.default_rng(12)
    market = random_market(rng, 100, gaps=True)
    mirror = Market(-market.ask_px, market.ask_sz, -market.bid_px, market.bid_sz, market.regime)
    for latency in (0, 1, 3):
        index, n = list(range(3, 60, 4)), [1 + i % 20 for i in range(15)]
        got, turned = (path_returns(trial, m, index, n, latency) for m in (market, mirror))
        trial.close(f"latency {latency}", got, turned[:, ::-1, list(_MIRROR)], MILLITICK)
        trial.true(f"latency {latency}: not all alike", np.ptp(got) > 10.0, np.ptp(got))


@oracle("hindsight")
def hindsight_path_trails_are_hold_and_window_ends_before_fill(trial: Trial) -> None:
    """Trail actions are Hold. With n shorter than the latency p' still bears nothing before the fill."""
    market = ladder(100 + np.arange(40) ** 2 % 17, spread=1)
    got = path_returns(trial, market, [4, 9], [2, 1], 3)
    trial.equal("trail actions", got[:, :, [HOLD, HOLD]], got[:, :, 7:9])
    mids = np.array([market.mid(i) for i in range(40)])
    for sample, (index, n) in enumerate(((4, 2), (9, 1))):
        weighted = np.diff(mids[index : index + 4]) * GAMMA ** np.arange(3)
        until_end, until_fill = weighted[:n].sum(), weighted.sum()
        cost = 2 * (0.5 + FEE / TICK) * GAMMA**2
        want = -1 * until_fill + 1 * (until_end - until_fill) - cost
        trial.close(f"n {n}: short one, LongSmall", want, got[sample, LIMIT - 1, 5], MILLITICK)


@oracle("hindsight")
def hindsight_path_thin_book_pays_the_worst_price(trial: Trial) -> None:
    """Lots that ten levels cannot fill are counted as filled and cost the worst displayed price."""
    market = ladder([100] * 20, spread=1)
    market.ask_sz[:] = 0.0
    market.ask_sz[:, 0], market.ask_sz[:, 4] = 1.0, 1.0  # one lot at 101, one at 105
    got = path_returns(trial, market, [3], [4], 1)
    for lots, walked in ((1, 0.5), (2, 0.5 + 4.5)):
        trial.close(f"{lots} lots", -walked - lots * FEE / TICK, got[0, LIMIT, 4 + lots], MILLITICK)
    trial.close("from -4 to +1", -(0.5 + 4 * 4.5) - 5 * FEE / TICK, got[0, 0, 5], MILLITICK)


@oracle("hindsight")
def hindsight_path_pyramid_limit(trial: Trial) -> None:
    """With one unit an add is a Hold; with four, a position of four small units may have come in two large ones."""
    one = trial.run("rl_path_next_class", _table_arrays(PYRAMID_MAX_UNITS=1.0), P=CLASSES)["next_class"]
    trial.equal("long 1: adds hold, a reversal does not", [LIMIT + 1, LIMIT + 1, LIMIT - 1], one[LIMIT + 1, [5, 6, 1]])
    two = trial.run("rl_path_next_class", _table_arrays(PYRAMID_MAX_UNITS=2.0), P=CLASSES)["next_class"]
    trial.equal("long 2 adds, long 3 does not", [LIMIT + 3, LIMIT + 3], two[[LIMIT + 2, LIMIT + 3], 5])


@oracle("hindsight")
def hindsight_path_reaches_the_dynamic_programme(trial: Trial) -> None:
    """A market of five steps: backward induction on one-step path targets equals the best of all 11^4 action sequences.

    The sequences are played by the environment, each in a row of its own; n-step targets of a fixed hold are below.
    """
    rng = np.random.default_rng(13)
    market = random_market(rng, 40, gaps=False)
    steps, start = 4, 6
    index = [start + k for k in range(steps)]
    got = path_returns(trial, market, index, [1] * steps, 1)
    table = trial.run("rl_path_next_class", _table_arrays(), P=CLASSES)["next_class"].astype(int)
    value = np.zeros(CLASSES)
    for k in reversed(range(steps)):
        q = got[k] + GAMMA * value[table]
        value = q.max(axis=1)
    sequences = np.array(list(itertools.product(range(ACTIONS), repeat=steps))).T
    rig = Rig(trial.device, market, [start] * sequences.shape[1], steps)
    pnl = rig.play(sequences)["pnl_step_usd"].astype(np.float64) / TICK
    best = (pnl * (GAMMA ** np.arange(steps))[:, None]).sum(axis=0).max()
    trial.close("value of the start, flat", best, value[LIMIT], MILLITICK * LIMIT)
    trial.true("it is worth trading", best > 1.0, best)
