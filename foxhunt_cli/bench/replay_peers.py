"""Other replay buffers behind one interface, for the comparison of ``foxhunt bench replay``.

Each peer does the same work a round: adds ``rows`` transitions (two encodings of 128 and the scalars), draws ``rows``
by priority with importance weights, reads every field of them, and sets their priorities. A package that is not
installed is named, not measured.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np

H = 128
ALPHA, BETA = 0.6, 0.4
PACKAGES = ("cpprb", "flashbax", "torchrl")


def missing(name: str) -> bool:
    """True if the package cannot be imported here."""
    return importlib.util.find_spec(name) is None


def make(name: str, capacity: int, rows: int) -> Callable[[], None]:
    """One round of the peer as a function without arguments; the buffer is full when it returns."""
    return {"cpprb": _cpprb, "flashbax": _flashbax, "torchrl": _torchrl}[name](capacity, rows)


def _batch(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        "h": rng.standard_normal((rows, H)).astype(np.float32),
        "next_h": rng.standard_normal((rows, H)).astype(np.float32),
        "action": rng.integers(0, 11, rows).astype(np.int32),
        "value": rng.standard_normal(rows).astype(np.float32),
        "discount": np.ones(rows, np.float32),
        "terminal": np.zeros(rows, np.float32),
    }


def _cpprb(capacity: int, rows: int) -> Callable[[], None]:
    import cpprb

    fields: dict[str, dict[str, Any]] = {name: {"shape": (H,)} for name in ("h", "next_h")}
    fields |= {"action": {"dtype": np.int32}, "value": {}, "discount": {}, "terminal": {}}
    buffer = cpprb.PrioritizedReplayBuffer(capacity, fields, alpha=ALPHA)
    batch, priorities = _batch(rows), np.random.default_rng(1).random(rows) + 0.1

    def round_() -> None:
        buffer.add(**batch)
        drawn = buffer.sample(rows, beta=BETA)
        _ = sum(float(drawn[name].sum()) for name in (*batch, "weights"))
        buffer.update_priorities(drawn["indexes"], priorities)

    for _ in range(-(-capacity // rows)):
        buffer.add(**batch)
    return round_


def _flashbax(capacity: int, rows: int) -> Callable[[], None]:
    """The item buffer, jitted as one function with the state donated."""
    import flashbax
    import jax
    import jax.numpy as jnp

    buffer = flashbax.make_prioritised_flat_buffer(
        max_length=capacity, min_length=rows, sample_batch_size=rows, add_sequences=False, add_batch_size=rows,
        priority_exponent=ALPHA, device=jax.default_backend(),
    )  # fmt: skip
    host = _batch(rows)
    host.pop("next_h")  # a flat buffer stores steps and returns pairs of neighbours: first and second
    batch = {name: jnp.asarray(value) for name, value in host.items()}
    state = buffer.init({name: value[0] for name, value in batch.items()})

    def work(state: Any, key: Any) -> tuple[Any, Any, Any]:
        key, draw = jax.random.split(key)
        state = buffer.add(state, batch)
        drawn = buffer.sample(state, draw)
        first, second = drawn.experience.first, drawn.experience.second
        read = sum(leaf.astype(jnp.float32).reshape(rows, -1).sum(axis=1) for leaf in jax.tree.leaves((first, second)))
        chance = getattr(drawn, "probabilities", None)
        chance = drawn.priorities if chance is None else chance
        weights = (chance + 1e-9) ** -BETA
        weights = weights / weights.max()
        state = buffer.set_priorities(state, drawn.indices, jnp.abs(read) * 1e-3 + weights * 1e-3 + 0.1)
        return state, key, read

    add = jax.jit(buffer.add, donate_argnums=0)
    for _ in range(-(-capacity // rows)):
        state = add(state, batch)
    held = [state, jax.random.PRNGKey(0)]
    step = jax.jit(work, donate_argnums=0)

    def round_() -> None:
        held[0], held[1], read = step(*held)
        read.block_until_ready()

    return round_


def _torchrl(capacity: int, rows: int) -> Callable[[], None]:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.data.replay_buffers.samplers import PrioritizedSampler

    sampler = PrioritizedSampler(capacity, alpha=ALPHA, beta=BETA)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(capacity), sampler=sampler, batch_size=rows)
    batch = TensorDict({name: torch.as_tensor(value) for name, value in _batch(rows).items()}, [rows])
    priorities = torch.rand(rows) + 0.1

    def round_() -> None:
        buffer.extend(batch)
        drawn = buffer.sample()
        _ = sum(float(drawn[name].sum()) for name in batch.keys())  # noqa: SIM118 (a TensorDict iterates over rows)
        buffer.update_priority(drawn["index"], priorities)

    for _ in range(-(-capacity // rows)):
        buffer.extend(batch)
    return round_
