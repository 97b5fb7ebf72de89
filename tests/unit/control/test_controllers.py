"""Controllers and gates as stages: frozen ones, who writes which slot, schedules of threads, one whole plan."""

from __future__ import annotations

import re

import numpy as np
import pytest

from foxhunt_cli.buffers import control as rows
from foxhunt_cli.buffers import env, learn
from foxhunt_cli.buffers.table import shape
from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.isv.seeds import seed_values
from foxhunt_cli.isv.table import by_name
from foxhunt_cli.kernels.registry import cuda_root, kernel, kernels
from foxhunt_cli.nets import c51, frd, policy
from foxhunt_cli.nets.params import lay_out
from foxhunt_cli.oracles.base import run_case, suites
from foxhunt_cli.pipeline import control
from foxhunt_cli.pipeline.build import build, kernels_of
from foxhunt_cli.pipeline.iteration import training
from foxhunt_cli.pipeline.shape import Shape
from foxhunt_cli.pipeline.stage import Matmul, Stage

ORDERS = ("forward", "reverse", "random:7")
MODULES = ("controllers", "learning_rate", "atom_span", "streaming", "gates_entry")
FILES = ("controllers.cu", "learning.cu", "streaming.cu", "gates.cu")
DIMS = {"B": 3, "T": 2, "W": 6, "P": 9, "R": 5, "N_TAU": 2, "N_CHUNKS": 1, "realised_reward": 0}


def _names(steps) -> list[str]:
    return [step.kernel for step in steps if isinstance(step, Stage)]


def _all_controllers(frozen=frozenset()) -> list[str]:
    behind = (*control.after_rollout_controllers(frozen), *control.atom_span(frozen, reproject=False))
    return _names([*control.n_step(frozen), *control.before_reward_controllers(frozen), *behind])


def test_every_controller_runs_once_and_a_frozen_one_not_at_all():
    assert sorted(_all_controllers()) == sorted(control.CONTROLLERS.values())
    for name, stage in control.CONTROLLERS.items():
        assert sorted([*_all_controllers(frozenset({name})), stage]) == sorted(control.CONTROLLERS.values())
    for preset, frozen in control.FROZEN.items():
        assert len(_all_controllers(frozen)) == len(control.CONTROLLERS) - len(frozen), preset


def test_an_unknown_controller_is_refused_with_its_name():
    for steps in (control.before_reward_controllers, control.after_rollout_controllers):
        with pytest.raises(ValueError, match="controllers.gama: no such controller; there are .*gamma"):
            steps(frozenset({"gama"}))


def test_weights_follow_the_span_only_where_it_may_grow():
    assert _names(control.atom_span(reproject=True)) == ["rl_controller_atom_span", "rl_atom_span_reproject"]
    assert control.atom_span(frozenset({"atom_span"}), reproject=True) == []
    names = {reproject: kernels_of(training(Shape(2, reproject=reproject))) for reproject in (True, False)}
    assert all(own.count("rl_controller_atom_span") == 1 for own in names.values())
    assert [("rl_atom_span_reproject" in own) for own in names.values()] == [True, False]


def test_the_ratio_clamp_reads_the_clip_of_this_iteration():
    order = _all_controllers()
    assert order.index("rl_controller_ppo_clip") < order.index("rl_controller_ppo_ratio_clamp")


def test_the_age_buffer_holds_every_controlled_slot():
    text = (cuda_root() / "control" / "controller.cuh").read_text()
    ages = [int(n) for n in re.findall(r"#define AGE_\w+ (\d+)", text)]
    assert ages == list(range(len(ages)))
    assert ages[-1] + 5 <= rows.N_CONTROLLER_AGES  # the last one counts five weights


@pytest.mark.parametrize(
    "slot", [s for s in by_name().values() if s.owner in control.CONTROLLERS.values()], ids=lambda s: s.name
)
def test_a_controlled_slot_is_written_by_its_owner_alone(slot):
    """No other kernel of the family assigns it."""
    writes = {}
    for contract in kernels().values():
        if contract.file.name in FILES:
            body = contract.file.read_text().splitlines()[contract.line - 1 :]
            stop = next(i for i, line in enumerate(body) if line == "}")
            writes[contract.name] = "\n".join(body[:stop])
    direct = {name for name, body in writes.items() if re.search(rf"isv\[ISV_{slot.name}\] =", body)}
    assert direct <= {slot.owner}


@pytest.fixture(scope="module")
def devices():
    made = {order: CpuDevice(threads=1, order=order, poison=True) for order in ORDERS}
    mine = [c for c in kernels().values() if c.file.name in FILES]
    for device in made.values():
        device.compile(mine)
    return made


_CASES = [c for cases in suites().values() for c in cases if c.function.__module__.rsplit(".", 1)[-1] in MODULES]


@pytest.mark.parametrize("case", _CASES, ids=[case.name for case in _CASES])
def test_oracles_agree_bit_for_bit_under_every_schedule(case, devices):
    shown = {}
    for order, device in devices.items():
        result = run_case(case, device)
        assert result.passed, (order, [c for c in result.checks if not c.ok], result.error)
        shown[order] = [(c.label, c.got) for c in result.checks]
    assert shown["forward"] == shown["reverse"] == shown["random:7"]


_BLOCK_KERNELS = ("rl_var_over_abs_mean_streaming", "rl_kurtosis_streaming", "ema_update_per_step", "rl_kl_approx_b")


@pytest.mark.parametrize("name", _BLOCK_KERNELS)
@pytest.mark.parametrize("count", [1, 31, 128, 1000])
def test_reductions_have_the_same_bits_under_every_schedule(name, count, devices):
    values = np.random.default_rng(count).normal(0.3, 2.0, count).astype(np.float32)
    results = []
    for device in devices.values():
        contract = kernel(name)
        arrays = {p.name: device.upload(values) for p in contract.params if p.pointer and p.name != "isv"}
        arrays["isv"] = device.upload(seed_values({}))
        operations = build([Stage(name, {"rows": str(count)})] * 3, arrays, {"slot": 420}, device)
        device.plan(operations, use_graph=False).run_eager()
        device.synchronize()
        results.append(device.download(arrays["isv"]).copy())
    assert not np.array_equal(results[0], seed_values({}))
    assert all(np.array_equal(results[0], other) for other in results[1:])


def _names_of(steps) -> set[str]:
    """Every buffer or tensor the steps name."""
    stages = [step for step in steps if isinstance(step, Stage)]
    named = {s.remap.get(p.name, p.name) for s in stages for p in kernel(s.kernel).params if p.pointer}
    return named | {v.name for step in steps if isinstance(step, Matmul) for v in (*step.operands, *step.results)}


def _arrays(device, steps, layout, seeds) -> dict:
    """The buffers the steps name, with plausible contents, and the tensors of the heads."""
    rng = np.random.default_rng(0)
    table = (*env.ROWS, *learn.ROWS, *rows.ROWS, *c51.BUFFERS, *frd.BUFFERS)
    arrays = {row.name: device.zeros(shape(row, DIMS), row.dtype) for row in table if row.name in _names_of(steps)}
    for name in layout.offsets:
        size = layout.offsets[name][1]
        for prefix in ("", "target_"):
            arrays[prefix + name] = device.upload(rng.normal(0, 0.1, size).astype(np.float32))
    for name in ("h", "c51_td", "advantage", "log_prob"):
        device.write(arrays[name], rng.normal(-1, 0.3, arrays[name].shape).astype(np.float32))
    device.write(arrays["position_class"], np.full(arrays["position_class"].shape, 4, np.int32))
    for name in ("isv", "isv_seed"):
        device.write(arrays[name], seeds)
    return arrays


def test_the_lists_run_as_they_are(devices):
    """Every stage binds to the buffers it names; one iteration makes the signals live, the next one moves the slots."""
    device = devices["forward"]
    seeds = seed_values({"gate_warmup_steps": 0.0}, "seed")
    steps = [Stage("rl_action_begin", {"t": str(t)}) for t in range(2)]
    for t in range(2):
        steps += control.entry_gates(t, "h")
    steps += [*control.before_reward_controllers(), *control.after_rollout_controllers()]
    steps += [*control.n_step(), *control.atom_span(reproject=True)]
    steps += control.after_updates_controllers()
    arrays = _arrays(device, steps, lay_out([*policy.PARAMETERS, *c51.PARAMETERS, *frd.PARAMETERS], DIMS), seeds)
    device.write(arrays["action_drawn"], np.full((2, 3), 6, np.int8))
    device.compile([kernel(name) for name in kernels_of(steps)])
    plan = device.plan(build(steps, arrays, DIMS, device), use_graph=False)
    plan.run_eager()
    first = device.download(arrays["isv"]).copy()
    assert np.all(device.download(arrays["action"]) == 2), "frd_prob is zero: no opening passes"
    plan.run_eager()
    device.synchronize()
    second = device.download(arrays["isv"])
    live = [
        by_name()[n].number
        for n in ("KL_PI_EMA", "PPO_LOG_RATIO_ABS_MAX", "ADVANTAGE_VAR_RATIO_EMA", "TD_KURTOSIS_EMA")
    ]
    assert np.all(np.isfinite(second)) and np.all(first[live] != 0)
    moved = [by_name()[n].number for n in ("PPO_CLIP_EPS", "PPO_RATIO_CLAMP_MAX", "PER_ALPHA", "LR_PI")]
    assert np.all(second[moved] != seeds[moved])
    assert np.array_equal(second[[400, 401, 403, 406]], seeds[[400, 401, 403, 406]]), "their inputs were never measured"
