"""Conservation: whole rollouts of random actions over random books, against integers and the reference simulator."""

from __future__ import annotations

import itertools

import numpy as np

from foxhunt_cli.isv.table import by_name
from foxhunt_cli.oracles.base import Trial, oracle
from foxhunt_cli.oracles.env_rig import QUIET, SHORT_SMALL, Market, Rig, isv_vector, ladder, random_market
from foxhunt_cli.oracles.reference_sim import ReferenceRow

MILLITICK = 1e-3  # of one lot at the default tick value: 0.0125 USD
TICK = 12.5

# Everything on at once: stops, trails, minimum hold, cap, anti-martingale.
BUSY = {
    "MIN_HOLD_STEPS": 2.0, "TRAIL_MIN": 0.001, "TRAIL_MAX": 100.0, "HARD_STOP_R": 0.8, "HEAT_CAP_USD": 500.0,
    "ANTI_MARTINGALE_GAIN": 0.6, "TRAIL_K_INIT": 1.1,
}  # fmt: skip
_INTEGERS = {
    "action": "action", "market_target": "target", "position_before": "before", "position_after": "after",
    "fill_lots": "fill", "unfilled_lots": "unfilled", "closed": "closed", "closed_trade_steps": "trade_steps",
    "closed_trade_lots": "trade_lots", "truncated": "truncated",
}  # fmt: skip
_USD = {
    "pnl_step_usd": "pnl", "fill_cost_usd": "cost", "realised_delta_usd": "delta", "closed_trade_pnl_usd": "trade_pnl",
    "closed_excursion_usd": "excursion",
}  # fmt: skip


def _slots(changed: dict[str, float]) -> dict[str, float]:
    values = {name: slot.seed for name, slot in by_name().items()}
    return {**values, **QUIET, **changed}


def _device_run(rig: Rig, actions: np.ndarray) -> dict[str, np.ndarray]:
    """Plays all actions, iteration after iteration with the same slots.

    [T, B] buffers come back end to end, the others as they are after the last iteration.
    """
    parts = []
    slots = isv_vector(**{**QUIET, **rig.isv})
    for start in range(0, len(actions), rig.rollout):
        parts.append(rig.play(actions[start : start + rig.rollout]))
        rig.advance()
        rig.set(isv=slots)  # the trade averages move after a rollout; the reference keeps them
    joined = dict(parts[-1])
    for name in (*_INTEGERS, *_USD, "reward_usd"):
        joined[name] = np.concatenate([part[name] for part in parts])
    for name in ("context", "position_class"):
        joined[name] = np.concatenate([part[name][1:] for part in parts])
        carried = [np.array_equal(part[name][0], before[name][-1]) for before, part in itertools.pairwise(parts)]
        joined[f"{name} carried"] = np.array(all(carried))
    return joined


def _reference_run(
    market: Market, cursor: np.ndarray, actions: np.ndarray, options: dict
) -> tuple[dict, np.ndarray, list]:
    """The same with one reference simulator a row: series by name, context [T, B, 3], the simulators as they end."""
    names = (*_INTEGERS.values(), *_USD.values(), "pnl_by_rule")
    series: dict[str, list[list[float]]] = {name: [] for name in names}
    rows = [ReferenceRow(market, **options) for _ in cursor]
    context = np.zeros((*actions.shape, 3))
    for t, drawn in enumerate(actions):
        at = [int(c) + t for c in cursor]
        last = t == len(actions) - 1
        results = [row.step(s, int(a), last) for row, s, a in zip(rows, at, drawn, strict=True)]
        for name in names:
            series[name].append([result[name] for result in results])
        context[t] = [row.context(market.mid(s + 1)) for row, s in zip(rows, at, strict=True)]
    return {name: np.array(values) for name, values in series.items()}, context, rows


def _compare(trial: Trial, label: str, seed: int, changed: dict[str, float], **scalars: float) -> None:
    """Device and reference play one episode of random actions; every number of every step must agree."""
    rng = np.random.default_rng(seed)
    rows, steps = 12, 160
    market = random_market(rng, 700)
    cursor = rng.integers(0, 700 - steps - 20, rows)
    rig = Rig(trial.device, market, cursor, 16, cursor + steps, changed, scalars)
    actions = rng.integers(0, 11, (steps, rows))
    got = _device_run(rig, actions)
    options = {
        "slots": _slots(changed), "latency": rig.dims["latency"], "ratchet": bool(rig.dims["ratchet"]),
        "since_close_rule": bool(rig.dims["since_close"]),
    }  # fmt: skip
    want, context, simulators = _reference_run(market, cursor, actions, options)
    for buffer, name in _INTEGERS.items():
        trial.equal(f"{label}: {buffer}", want[name], got[buffer].astype(np.int64))
    for buffer, name in _USD.items():
        trial.close(f"{label}: {buffer}", want[name], got[buffer], MILLITICK * TICK)
    trial.close(f"{label}: context", context, got["context"], 1e-4)
    trial.equal(f"{label}: class", got["position_after"] + 4, got["position_class"])
    trial.true(f"{label}: slice 0 is the last slice T", got["context carried"] and got["position_class carried"])
    trial.equal(f"{label}: cash", [s.cash for s in simulators], got["cash_ticks"])
    trial.equal(f"{label}: fee sides", [s.sides for s in simulators], got["fee_sides"])
    trial.close(f"{label}: reward is p x dm - cost", want["pnl_by_rule"], got["reward_usd"], MILLITICK * TICK)
    trial.close(f"{label}: outcome", [s.outcome for s in simulators], got["outcome_ema"], 1e-5)
    trial.true(f"{label}: trades happened", got["closed"].sum() > rows, int(got["closed"].sum()))


@oracle("conservation")
def conservation_reference_simulator_quiet(trial: Trial) -> None:
    for latency in (0, 1, 3):
        _compare(trial, f"latency {latency}", 10 + latency, {}, latency=latency)


@oracle("conservation")
def conservation_reference_simulator_all_overrides(trial: Trial) -> None:
    for latency in (0, 1, 3):
        _compare(trial, f"latency {latency}", 20 + latency, BUSY, latency=latency)


@oracle("conservation")
def conservation_reference_simulator_seed_rules(trial: Trial) -> None:
    live = {**BUSY, "MEAN_ABS_PNL_EMA": 90.0, "CLOSED_LOTS_EMA": 1.7, "MIN_HOLD_STEPS": 4.0}
    _compare(trial, "no ratchet, since close, live EMA", 31, live, ratchet=0, since_close=1)
    _compare(trial, "one unit", 32, {**BUSY, "PYRAMID_MAX_UNITS": 1.0})


@oracle("conservation")
def conservation_totals_over_iterations(trial: Trial) -> None:
    """Sums over several iterations equal the change of equity, in integers; realised + unrealised = equity."""
    rng = np.random.default_rng(5)
    rows, steps, rounds = 16, 50, 5
    market = random_market(rng, 600)
    cursor = rng.integers(0, 300, rows).astype(np.int32)
    rig = Rig(trial.device, market, cursor, steps, isv=BUSY)
    pnl, reward, delta = np.zeros(rows), np.zeros(rows), np.zeros(rows)
    for _ in range(rounds):
        got = rig.play(rng.integers(0, 11, (steps, rows)))
        pnl += got["pnl_step_usd"].sum(axis=0, dtype=np.float64)
        reward += got["reward_usd"].sum(axis=0, dtype=np.float64)
        delta += got["realised_delta_usd"].sum(axis=0, dtype=np.float64)
        rig.advance()
    mid = np.array([market.mid(int(c)) for c in rig.cursor])
    equity = (got["cash_ticks"] + got["position_lots"] * mid) * TICK - got["fee_sides"] * 2.0
    unrealised = (got["position_lots"] * mid - got["entry_basis"]) * TICK
    trial.close("sum of PnL = cash + position x mid - fees", equity, pnl, MILLITICK * TICK)
    trial.close("equity", equity, got["equity_usd"], MILLITICK * TICK)
    trial.close("sum of rewards = PnL", equity, reward, MILLITICK * TICK)
    trial.close("realised + unrealised", equity, got["realised_usd"] + unrealised, MILLITICK * TICK)
    trial.close("sum of realised deltas", got["realised_usd"], delta, MILLITICK * TICK)
    trial.equal("units hold the position", np.abs(got["position_lots"]), got["unit_lots"].sum(axis=1))
    trial.true("positions are open at the end", np.any(got["position_lots"] != 0))


@oracle("conservation")
def conservation_flip_is_close_then_open(trial: Trial) -> None:
    """Long 2 at 100, ShortSmall in one step: the first two lots close, the third opens; fees split 2 : 1."""
    rig = Rig(trial.device, ladder([110, 110, 110], size=2.0), [0], 1)
    rig.hold_position(2, [(100.0, 2)])
    got = rig.play([SHORT_SMALL])
    trial.equal("position", -1, got["position_lots"])
    trial.equal("sold 2 at 110, 1 at 109", 329, got["fill_price_lots"][0])
    trial.equal("closing part", 220, got["fill_close_price_lots"][0])
    trial.close("trade: 20 ticks less 2 sides", 20 * TICK - 4.0, got["closed_trade_pnl_usd"][0], 1e-4)
    trial.close("realised: also the opening side", 20 * TICK - 6.0, got["realised_delta_usd"][0], 1e-4)
    trial.close("the new trade starts with its fee", -2.0, got["trade_pnl_usd"], 1e-6)
    trial.close("entry", 109.0, got["entry_vwap"], 0.0)
    trial.equal("one unit", [[1, 0, 0, 0]], got["unit_lots"])
    trial.equal("age", 0, got["trade_open_step"])
    trial.equal("closed", 1, got["closed"][0])
