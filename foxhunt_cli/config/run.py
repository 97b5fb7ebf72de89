"""The run's configuration: every field a user may set, its default, unit and bounds.

Owns ``RunConfig``. It describes a run and checks it; it reads no file and touches no device. Values that the
kernels read while training (learning rates, penalties, bounds) are not fields here: they are ISV slots, seeded
through ``isv`` and validated by ``foxhunt_cli.isv.seeds``.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from foxhunt_cli.data.errors import is_utf8
from foxhunt_cli.data.options import DataOptions
from foxhunt_cli.data.synthetic import SyntheticOptions

BATCH_MAX = 65_536
ROLLOUT_MAX = 1_024
# Rows x steps of one iteration; above it a single activation buffer passes half a gigabyte.
MOMENTS_MAX = 1_048_576
# Steps, and what is counted in steps or lines: more than any run has, and their sums fit into 64 bits.
COUNT_MAX = 10**12
LOT_LIMIT_MAX = 8
LATENCY_MAX = 16

_DEVICE = re.compile(r"auto|cpu|cuda(:\d+)?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@cache
def preset_fields(preset: str) -> dict[str, Any]:
    """Configuration fields that ``preset`` sets, by name; empty for an unknown one, which validation refuses."""
    path = resources.files("foxhunt_cli.config").joinpath("presets.toml")
    return dict(tomllib.loads(path.read_text()).get(preset, {}).get("config", {}))


class RunConfig(BaseModel):
    """One training run. Unknown keys are refused; every default trains on a CPU out of the box."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True)

    preset: Literal["foxhunt", "seed"] = "foxhunt"
    """Whose recipe the values not given follow: foxhunt, or seed, the recipe of the seeds whole."""

    steps: int = Field(10_000, ge=1, le=COUNT_MAX)
    """Environment steps of each row; rounded up to whole iterations of `rollout` steps."""

    seed: int = Field(0, ge=0, le=2**63 - 1)
    """Seed of every random stream of the run. Same seed, data, config and device kind: identical run."""

    name: str | None = None
    """Name of the run's directory under `runs_dir`; by default UTC time and a word."""

    runs_dir: Path = Path("runs")
    """Directory that run directories are made in."""

    device: str = "auto"
    """Where kernels run: auto (CUDA if usable, else CPU), cuda, cuda:N or cpu."""

    cpu_threads: int | None = Field(None, ge=1, le=1_024)
    """Threads of the CPU device; by default the cores this process may use."""

    precision: Literal["tf32", "fp32"] = "tf32"
    """Matrix products on CUDA: tf32 uses tensor cores, fp32 the plain path. The CPU always computes in fp32."""

    graph: bool = True
    """Replay each iteration as one recorded graph (CUDA). False runs the same list one kernel at a time."""

    branches: int = Field(4, ge=1, le=16)
    """Branches of that graph: operations of which none needs another run at the same time. 1 = one after the other."""

    fused: bool = True
    """Use fused kernels (CUDA), which do many steps of the list at once; False runs each step alone, as on the CPU."""

    batch: int = Field(16, ge=1, le=BATCH_MAX)
    """B: parallel backtests, each a row with its own account."""

    rollout: int = Field(16, ge=1, le=ROLLOUT_MAX)
    """T: environment steps of an iteration, before the learning from them."""

    encoder: Literal["full", "mlp"] = "full"
    """Network that turns the window of snapshots into the encoding the heads read."""

    context: Literal["heads", "encoder"] = "heads"
    """Where the position enters. heads: the encoding is market-only, the heads have a block for each position class.
    encoder: the position is among the encoder's inputs, the heads have one block; needs rollout = 1."""

    updates: int = Field(4, ge=0, le=64)
    """U: critic updates an iteration, from replay, distilled into the policy; 0 = the policy learns alone (PPO)."""

    replay_batch: int = Field(256, ge=1, le=65_536)
    """R: transitions of a replay batch; the batch in preset seed."""

    replay_capacity: int | None = Field(None, ge=1)
    """Slots of the replay, a power of two; by default the next one at or above 32,768 and 128 a row."""

    critic_grad: bool = False
    """The critic's loss on the iteration's own moments teaches the encoder too; by default only the other heads do."""

    replay_encoding: Literal["stored", "fresh"] = "stored"
    """What the critic learns from: encodings as they were stored, or sampled moments encoded anew (costs more)."""

    hindsight: Literal["none", "close", "peak", "path"] = "path"
    """path: the critic learns every position and action from the price path, and hindsight repeats the moments that
    mattered. close, peak: it learns the executed action, and hindsight adds a labelled transition. none: neither."""

    hindsight_directions: Literal["both", "backward", "forward", "off"] = "both"
    """Which hindsight adds transitions: of peaks (backward), of what came after a close (forward), both, none."""

    entry_gates: bool = False
    """Entries must pass the confidence gate (C51) and the forward-return gate; evaluation follows the same switch."""

    distillation: Literal["classes", "own", "off"] = "classes"
    """What the critic teaches the policy: every position class with a temperature scaled by the action gap, the row's
    own with the slot's temperature, or nothing (it still learns, and can be played)."""

    iqn: bool = True
    """The critic has a quantile head (IQN) beside C51; False: values are those of C51 alone."""

    noisy: bool = True
    """C51 learns under factorised noise on its weights; False: on the mean weights, sigmas stay where they began."""

    reference_kl: bool = True
    """Where the critic teaches, the policy is also pulled towards one that mostly holds (isv.kl_ref_beta)."""

    lr_plateau: bool = False
    """Learning rates halve when a loss stands still."""

    controllers: dict[str, Literal["on", "fixed"]] = {}
    """Controllers switched on or frozen against the preset, e.g. {"ppo_clip": "fixed"}."""

    reward: Literal["mark_to_market", "realised"] = "mark_to_market"
    """What a step pays: change of equity, or PnL at the close of a trade only."""

    lot_limit: int | None = Field(None, ge=1, le=LOT_LIMIT_MAX)
    """Largest position in lots, either side; by default the instrument's (4 in the presets)."""

    latency_steps: int = Field(1, ge=0, le=LATENCY_MAX)
    """Snapshots between a decision and its fill."""

    episode_len: int | None = Field(None, ge=2, le=COUNT_MAX)
    """Steps of an episode; by default what the sessions of the data allow, at most 4096."""

    holdout: float = Field(0.2, ge=0.0, le=0.9)
    """Share of the data at its end that training never samples and evaluation plays on."""

    trail_ratchet: bool = True
    """The trailing stop follows the best mid of the trade; False keeps it at the entry's distance."""

    hold_since_close: bool = False
    """The minimum hold counts from the row's last close, not from the trade's open."""

    mask_overridden: bool = True
    """Rows whose action a gate or stop replaced give the policy loss no gradient."""

    log_every: int = Field(1, ge=1, le=COUNT_MAX)
    """Iterations between two lines of run.jsonl."""

    drain_every: int = Field(64, ge=1, le=4_096)
    """Iterations between two reads of the diagnostic ring from the device."""

    checkpoint_every: int = Field(1_000, ge=0, le=COUNT_MAX)
    """Steps between two checkpoints; 0 = only at the end."""

    keep: int = Field(3, ge=1, le=COUNT_MAX)
    """Checkpoints kept; older ones are removed."""

    best: bool = False
    """Also keep the checkpoint whose policy earned most on the held-out range, beside the newest `keep`."""

    eval_every: int = Field(2_000, ge=0, le=COUNT_MAX)
    """Steps between two evaluations on the held-out range; 0 = never."""

    paths: tuple[Path, ...] | None = Field(None, min_length=1)
    """Market data: one file, or several that are read in this order as one source; unset = the synthetic market."""

    data: DataOptions = DataOptions()
    """How the files are read, and the instrument's replacements (tick, fee)."""

    synthetic: SyntheticOptions = SyntheticOptions()
    """The synthetic market that is used where `paths` is unset."""

    isv: dict[str, float] = {}
    """Seeds of ISV slots, names in lower case, e.g. {"lr_pi": 0.0005}."""

    @model_validator(mode="before")
    @classmethod
    def _follow_preset(cls, given: Any) -> Any:
        """What the preset sets and the user did not give."""
        if not isinstance(given, Mapping) or given.get("preset", "foxhunt") == "foxhunt":
            return given
        fields = preset_fields(str(given["preset"]))
        return {**fields, "replay_batch": given.get("batch", cls.model_fields["batch"].default), **given}

    @field_validator("device")
    @classmethod
    def _known_device(cls, value: str) -> str:
        if not _DEVICE.fullmatch(value):
            raise ValueError(f"expected auto, cpu, cuda or cuda:N, got '{value}'")
        return value

    @field_validator("name")
    @classmethod
    def _usable_name(cls, value: str | None) -> str | None:
        if value is not None and not _NAME.fullmatch(value):
            raise ValueError(
                f"expected 1 to 100 letters, digits, '.', '_' or '-', not starting with a sign, got '{value}'"
            )
        return value

    @field_validator("runs_dir")
    @classmethod
    def _writable_as_text(cls, value: Path) -> Path:
        if not is_utf8(value):
            raise ValueError(f"expected a name in UTF-8, since the manifest has to hold it, got {os.fsencode(value)!r}")
        return value

    @field_validator("paths", mode="before")
    @classmethod
    def _one_path_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str | Path) else value

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.batch * self.rollout > MOMENTS_MAX:
            raise ValueError(
                f"batch x rollout is {self.batch} x {self.rollout} = {self.batch * self.rollout:,} moments an "
                f"iteration, the limit is {MOMENTS_MAX:,}; use a smaller --batch or --rollout"
            )
        if self.episode_len is not None and self.episode_len < 2 * self.rollout:
            raise ValueError(
                f"episode_len is {self.episode_len}, an episode holds at least two iterations of rollout = "
                f"{self.rollout} steps; raise episode_len to {2 * self.rollout} or lower rollout"
            )
        return self

    @model_validator(mode="after")
    def _choices_fit(self) -> Self:
        if self.context == "encoder" and self.rollout != 1:
            raise ValueError(
                f"context = encoder needs rollout = 1 (the position is known one step at a time), got rollout = "
                f"{self.rollout}; use --rollout 1 or --context heads"
            )
        if self.context == "encoder" and self.hindsight == "path" and self.updates:
            raise ValueError(
                "hindsight = path needs context = heads (path targets are for every position, an encoding that knows "
                "the position is for one); use --context heads or --hindsight close, peak or none"
            )
        if self.best and not (self.eval_every and self.holdout):
            raise ValueError(
                f"best needs evaluations on held-out data, got eval_every = {self.eval_every} and holdout = "
                f"{self.holdout:g}; use --eval-every 2000 and --set holdout=0.2, or leave --best out"
            )
        if self.critic_grad and not (self.updates and self.hindsight == "path"):
            raise ValueError(
                f"critic_grad needs a critic that learns from path targets, got updates = {self.updates} and hindsight "
                f"= {self.hindsight}; use --hindsight path and --updates 1 or more, or leave --critic-grad out"
            )
        if self.replay_encoding == "fresh" and self.context == "encoder":
            raise ValueError(
                "replay_encoding = fresh needs context = heads (an encoding that knows the position cannot be made "
                "again from the market alone); use --replay-encoding stored or --context heads"
            )
        if self.replay_encoding == "fresh" and self.hindsight in ("close", "peak"):
            raise ValueError(
                f"replay_encoding = fresh needs hindsight = path or none (transitions of label {self.hindsight} are "
                "not moments of the market); use --replay-encoding stored or --hindsight path"
            )
        if self.entry_gates and not self.updates:
            raise ValueError("entry_gates needs a critic, got updates = 0; use --updates 1 or entry_gates = false")
        return self

    @property
    def iterations(self) -> int:
        """Iterations of the run: `steps` rounded up to whole rollouts."""
        return -(-self.steps // self.rollout)
