"""An n of the replay that falls: what windows it makes, the same bits recorded and eager, exactly on after a resume."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from engines import differing, engine, iterate, iterate_eagerly, read, state

from foxhunt_cli.config.load import load_config
from foxhunt_cli.isv.table import number
from foxhunt_cli.pipeline.iteration import training
from foxhunt_cli.train.checkpoint import load, restore, save, state_names
from foxhunt_cli.train.engine import Engine, prefill_iterations
from foxhunt_cli.train.shapes import shape_of

END, START, STEPS = 2, 20, 60  # of a row; 4 an iteration
SMALL = ("encoder=mlp", "isv.p_min=0.05", f"isv.n_step={END}")
ANNEALED = (*SMALL, f"isv.n_step_start={START}", f"isv.n_step_anneal_steps={STEPS}")
ITERATIONS = 24


@pytest.fixture(scope="module")
def annealed() -> Engine:
    return iterate(engine(*ANNEALED), ITERATIONS)


def test_n_falls_with_the_steps_and_every_window_has_the_n_of_its_push(annealed: Engine) -> None:
    steps = 4 * np.arange(ITERATIONS)  # that a row has made before each iteration
    wanted = np.rint(START + (END - START) * np.minimum(steps / STEPS, 1.0))
    np.testing.assert_array_equal(annealed.drain()[:, number("N_STEP")], wanted)
    assert annealed.done > annealed.prefill_iterations, "the critic has not learned yet"
    moments, waiting = 4 * 4 * ITERATIONS, read(annealed, "pending_moments")
    assert (waiting == END - 1).all()
    real = (read(annealed, "store_source") == 0) & (np.arange(annealed.dims["C"]) < read(annealed, "replay_state")[1])
    assert real.sum() == moments - waiting.sum(), "a moment was lost or pushed twice"
    births, n = read(annealed, "store_birth")[real], read(annealed, "store_n")[real]
    assert len(set(zip(births, read(annealed, "store_row")[real], strict=True))) == real.sum()
    pushed = (births + n - 1) // 4  # iteration of the step that completed it
    assert (n >= wanted[pushed]).all(), "a window is shorter than n"
    assert (n <= wanted[np.maximum(pushed - 1, 0)]).all(), "a window is longer than n was when it waited"
    assert n[births == 0].tolist() == [16] * 4, "after 16 steps n is 16, not yet 15"
    assert (n[births > STEPS] == END).all()


def test_recorded_equals_eager_bit_for_bit(annealed: Engine) -> None:
    eager = iterate_eagerly(engine(*ANNEALED, "graph=false"), ITERATIONS)
    assert differing(state(annealed), state(eager)) == []


@pytest.mark.parametrize("at", [2, 11, 20])
def test_a_run_resumed_while_n_falls_goes_on_exactly(annealed: Engine, at: int, tmp_path: Path) -> None:
    first, second = iterate(engine(*ANNEALED), at), engine(*ANNEALED)
    restore(second, load(save(first, tmp_path, 4 * at, {}, 0.0)), state_names(second))
    second.done = at
    assert differing(state(annealed), state(iterate(second, ITERATIONS - at))) == []


def test_without_it_n_is_constant_and_nothing_runs_for_it() -> None:
    plain, config = iterate(engine(*SMALL), 3), load_config(sets=list(SMALL))
    assert "rl_controller_n_step" not in plain.kernels and set(plain.drain()[:, number("N_STEP")]) == {END}
    other = load_config(sets=[*ANNEALED])
    with_it = training(shape_of(other))
    assert [s for s in with_it if getattr(s, "kernel", "") != "rl_controller_n_step"] == training(shape_of(config))
    assert len(with_it) == len(training(shape_of(config))) + 1


def test_sizes_are_those_of_the_longest_window() -> None:
    config, constant = load_config(sets=list(ANNEALED)), load_config(sets=[*SMALL, f"isv.n_step={START}"])
    assert shape_of(config).n_step == START and prefill_iterations(config) == prefill_iterations(constant)
    off = load_config(sets=[*ANNEALED, 'controllers.n_step="fixed"'])
    assert shape_of(off).n_step == END and "n_step" in shape_of(off).frozen


@pytest.mark.parametrize("choice", [("replay_encoding=fresh",), ("hindsight=none",), ("critic_grad=true",)])
def test_every_way_to_learn_from_a_window_takes_one_that_becomes_shorter(choice: tuple[str, ...]) -> None:
    e = iterate(engine(*ANNEALED, *choice), ITERATIONS)
    isv = e.drain()
    assert e.done > e.prefill_iterations and np.isfinite(isv).all() and isv[-1, number("LOSS_Q")] > 0
    assert isv[-1, number("N_STEP")] == END and not e.faulted()
