"""Plays policies over a held-out range on the device, through the same environment as training.

Rows are non-overlapping segments of equal length, cut inside sessions; all of them are played at once. The agent plays
greedily (argmax of its policy) with the weights and the ISV it has at that moment; baselines replace the draw. The
hindsight bound says what there was to be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from foxhunt_cli.config.dims import WARMUP_SNAPSHOTS
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.errors import DataError
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.isv.table import number
from foxhunt_cli.market import baselines
from foxhunt_cli.market.blotter import Range
from foxhunt_cli.market.judge import Judgement, judge
from foxhunt_cli.market.metrics import Play, summarise
from foxhunt_cli.market.plays import PER_STEP, bound_play, device_play
from foxhunt_cli.market.prepare import prepare_data
from foxhunt_cli.market.tape import Tape
from foxhunt_cli.pipeline.iteration import following, playing, playing_by_value
from foxhunt_cli.pipeline.judging import OUTPUTS, judging

if TYPE_CHECKING:
    from foxhunt_cli.train.engine import Engine

SEGMENT_STEPS = 2048  # a row plays at most so many steps
MLP_ROLLOUT = 32
"""Steps an iteration of a play with the mlp encoder: it sees the same window of a step whatever the rollout, and a few
long iterations take less time than many short ones. The full encoder remembers from the start of an iteration's window
on."""
AGENT, CRITIC, BOUND, RULE, HEADS = "agent", "critic", "bound", "rule", "heads"
POLICIES = (AGENT, CRITIC, "hold", "random", "moving average", "flow", BOUND)  # who plays, in the table's order
_RANDOM_SEED_SALT = 7919


@dataclass(frozen=True)
class Evaluation:
    """Metrics by policy (the agent first) and the conventions they follow. plays: what was played, where, for files."""

    policies: dict[str, dict[str, float]]
    notes: list[str] = field(default_factory=list)
    plays: dict[str, Play] = field(default_factory=dict)
    played: Range | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"policies": self.policies, "notes": self.notes}


@dataclass(frozen=True)
class Segments:
    """First snapshot of each row's segment and the length all rows share, a whole number of rollouts."""

    first: np.ndarray
    steps: int


def cut_segments(market: MarketData, rollout: int, latency: int) -> Segments:
    """Non-overlapping segments inside sessions. Raises DataError where no session holds two rollouts."""
    usable = market.session_lengths - WARMUP_SNAPSHOTS - latency - 1
    steps = int(min(SEGMENT_STEPS, usable.max())) // rollout * rollout
    if steps < rollout:
        raise DataError(
            f"held-out range: its longest session has {int(market.session_lengths.max()):,} snapshots, it needs "
            f"{WARMUP_SNAPSHOTS + latency + 1 + rollout:,}; use more data, a smaller --rollout or --set holdout=0"
        )
    first: list[int] = []
    for start, room in zip(market.session_start.tolist(), usable.tolist(), strict=True):
        begin = start + WARMUP_SNAPSHOTS - 1
        first.extend(begin + i * steps for i in range(max(room, 0) // steps))
    return Segments(np.array(first, np.int32), steps)


def _play_rollout(config: RunConfig, steps: int) -> int:
    """Steps an iteration of a play of ``steps`` steps; a divisor of them, so that the same steps are played."""
    if config.encoder != "mlp" or config.context != "heads":
        return config.rollout
    multiples = range(config.rollout, MLP_ROLLOUT + 1, config.rollout)
    return max((rollout for rollout in multiples if steps % rollout == 0), default=config.rollout)


class Evaluator:
    """Plays a run's agent and the baselines over one held-out range. Arrays and plans are made once.

    engine: the run's own, whose weights are played. sigmas: of the training range, float32 [3].
    """

    def __init__(self, config: RunConfig, engine: Engine, market: MarketData, sigmas: np.ndarray) -> None:
        self._trained = engine
        self._market = market
        self._segments = cut_segments(market, config.rollout, config.latency_steps)
        self._played = Range(market, self._segments.first, self._segments.steps, config.latency_steps)
        self._lot_limit = config.lot_limit or market.instrument.lot_limit
        rollout = _play_rollout(config, self._segments.steps)
        self._config = config.model_copy(update={"batch": len(self._segments.first), "rollout": rollout})
        isv = engine.device.download(engine.arrays["isv"])
        self._data = prepare_data(
            engine.device,
            market,
            isv,
            rollout=rollout,
            latency=config.latency_steps,
            episode_len=self._segments.steps,
            sigmas=sigmas,
            role="held-out",
        )
        self._engines: dict[str, Engine] = {}
        self._tapes: dict[str, Tape] = {}

    def agent(self) -> Evaluation:
        """The trained policy alone: what a periodic evaluation reports."""
        return Evaluation({kind: summarise(self._play(kind, None)) for kind in self._learned()}, self._notes())

    def all_policies(self, sides: Mapping[str, np.ndarray] | None = None) -> Evaluation:
        """The trained policy, every baseline and the bound.

        sides: further policies by name, as the side that each snapshot of the range wants (``baselines``), int8 [N].
        """
        plays = {kind: self._play(kind, None) for kind in self._learned()}
        rate = len(plays[AGENT].trade_pnl) / plays[AGENT].pnl.size
        seed = self._config.seed + _RANDOM_SEED_SALT
        rules = {
            "hold": baselines.hold(self._market),
            "random": baselines.random_side(self._market, rate or 0.005, seed),
            "moving average": baselines.moving_average(self._market),
            "flow": baselines.flow_follower(self._market),
        }
        for name, side in {**rules, **(sides or {})}.items():
            plays[name] = self._play(RULE, side)
        plays[BOUND] = bound_play(self._played, self._lot_limit)
        policies = {name: summarise(play) for name, play in plays.items()}
        possible = policies[BOUND]["net USD"]
        for figures in policies.values():
            figures["share of the bound"] = figures["net USD"] / possible if possible > 0 else float("nan")
        return Evaluation(policies, [*self._notes(), self.supervised().line()], plays, self._played)

    def supervised(self) -> Judgement:
        """The forward-return and direction heads on every snapshot the policies play on."""
        engine, device = self._engine(HEADS), self._trained.device
        self._rewind(engine)
        seen: dict[str, list[np.ndarray]] = {name: [] for name in OUTPUTS}
        for _ in range(self._segments.steps // self._config.rollout):
            engine.iterate()
            for name in OUTPUTS:
                values = np.array(device.download(engine.arrays[name]))
                seen[name].append(values.reshape(values.shape[0] * values.shape[1], *values.shape[2:]))
        prob, bucket, logits, up = (np.concatenate(seen[name]) for name in OUTPUTS)
        return judge(prob, bucket, logits + device.download(self._trained.arrays["b_direction"]), up)

    def _learned(self) -> tuple[str, ...]:
        """What there is to play: the policy, and the critic's own greedy choice where the run has a critic."""
        return (AGENT, CRITIC) if self._config.updates else (AGENT,)

    def _notes(self) -> list[str]:
        rows, steps = len(self._segments.first), self._segments.steps
        return [
            f"{rows} row{'' if rows == 1 else 's'} of {steps:,} steps, non-overlapping; net = fills against the book, "
            "marks at the mid and fees",
            "interval: bootstrap over rows; exit capture: net PnL of closed trades / their best mid excursion",
            "Sharpe, Sortino: mean / (downside) deviation, of trades and of net PnL of all rows by minute of market "
            f"time, flat minutes included, x sqrt(252 days x {self._market.instrument.session_minutes:,} minutes)",
            "bound: what perfect foresight would have earned, same costs, latency and lot limit",
        ]

    def _engine(self, kind: str) -> Engine:
        if kind not in self._engines:
            self._engines[kind] = self._build(kind)
        return self._engines[kind]

    def _build(self, kind: str) -> Engine:
        if kind == RULE:
            own = {"signal": self._trained.device.zeros(self._data.n_snapshots, np.int8)}
            return self._trained.another(self._config, self._data, following, own)
        steps = {AGENT: playing, CRITIC: playing_by_value, HEADS: judging}[kind]
        return self._trained.another(self._config, self._data, steps, self._weights())

    def _weights(self) -> dict[str, Any]:
        """The trained engine's own tensors and target copies: what it learns is what is played."""
        trained = self._trained
        own = {"params", "target_params", *trained.layout.offsets, *(f"target_{n}" for n in trained.layout.offsets)}
        return {name: array for name, array in trained.arrays.items() if name in own}

    def _play(self, kind: str, signal: np.ndarray | None) -> Play:
        """Play all segments once from flat accounts."""
        engine, device = self._engine(kind), self._trained.device
        isv = device.download(self._trained.arrays["isv"]).copy()
        isv[number("TRAIN_STEP")] = 0.0
        device.write(engine.arrays["isv"], isv)
        if signal is not None:
            device.write(engine.arrays["signal"], signal)
        self._rewind(engine)
        iterations = self._segments.steps // self._config.rollout
        if kind not in self._tapes:
            self._tapes[kind] = Tape(device, {name: engine.arrays[name] for name in PER_STEP}, iterations)
        tape = self._tapes[kind]
        for iteration in range(iterations):
            engine.iterate()
            tape.record(iteration)
            if iteration == 0:
                device.write(engine.arrays["new_episode"], np.zeros(self._config.batch, np.uint8))
        return device_play(tape.read(), self._played)

    def _rewind(self, engine: Engine) -> None:
        """Every row at its first snapshot, flat, with an empty account."""
        device, arrays, rows = engine.device, engine.arrays, self._config.batch
        for name in arrays.keys() & {"cash_ticks", "fee_sides", "realised_usd", "fees_usd", "equity_usd"}:
            device.write(arrays[name], np.zeros(arrays[name].shape, arrays[name].dtype))
        device.write(arrays["cursor"], self._segments.first)
        if "episode_end" in arrays:
            device.write(arrays["episode_end"], self._segments.first + np.int32(self._segments.steps))
        device.write(arrays["new_episode"], np.ones(rows, np.uint8))
