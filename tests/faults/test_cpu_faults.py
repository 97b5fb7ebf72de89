"""The CPU device reports each kind of fault that a GPU would run in silence; a planted one proves it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from foxhunt_cli.device.base import CompileError, DeviceError, KernelFault, Launch
from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.device.cpu_build import sanitizer_environment
from foxhunt_cli.kernels.contract import KernelContract, parse_file

PLANTED = Path(__file__).parent / "planted"
ORDERS = ("forward", "reverse", "random:1", "random:2")


def contracts(name: str) -> dict[str, KernelContract]:
    return {c.name: c for c in parse_file(PLANTED / f"{name}.cu")}


def line_of(name: str, text: str, occurrence: int = 1) -> int:
    lines = (PLANTED / f"{name}.cu").read_text().splitlines()
    return [i for i, line in enumerate(lines, 1) if text in line][occurrence - 1]


def run(device: CpuDevice, contract: KernelContract, grid: int = 1, block: int = 64) -> np.ndarray:
    """Launches a planted kernel on N = grid blocks (or 64 items) and returns its output."""
    items = 64 if contract.launch.mode == "threads" else grid
    values = {"in": device.upload(np.random.default_rng(0).standard_normal(64).astype(np.float32)), "N": items}
    values["out"] = device.zeros(64 if contract.launch.mode == "threads" else 64 * grid, np.float32)
    args = tuple(values[p.name] for p in contract.params)
    device.plan([Launch(contract, grid, block, 4 * 64, args)]).run()
    return device.download(values["out"])


@pytest.mark.parametrize("kernel", ["missing_barrier", "scan_missing_barrier", "last_writer", "block_order"])
def test_races_show_in_the_order_of_threads(kernel: str) -> None:
    contract = contracts("races")[kernel]
    grid = 64 if kernel == "block_order" else 1
    block = 1 if kernel == "block_order" else 64
    results = [run(CpuDevice(order=order), contract, grid, block) for order in ORDERS]
    for order, result in zip(ORDERS[1:], results[1:], strict=True):
        assert not np.array_equal(result, results[0]), f"{order} order gives the result of forward order"


def test_a_correct_kernel_gives_the_same_bits_in_every_order() -> None:
    results = [run(CpuDevice(order=order), contracts("races")["correct_scan"]) for order in ORDERS]
    for result in results[1:]:
        np.testing.assert_array_equal(result.view(np.uint32), results[0].view(np.uint32))


def fault_of(kernel: str, grid: int = 1, block: int = 64, **options: object) -> str:
    with pytest.raises(KernelFault) as caught:
        run(CpuDevice(**options), contracts("divergence")[kernel], grid, block)
    return str(caught.value)


def test_exit_before_a_barrier_names_who_waits_and_who_left() -> None:
    words = fault_of("some_exit")
    place = f"divergence.cu:{line_of('divergence', '__syncthreads();')}"
    assert "kernel some_exit" in words and "block 0: divergent barrier" in words
    assert "threads 0-39 wait at __syncthreads" in words and place in words
    assert "threads 40-63 have exited" in words


def test_waiting_at_two_barriers_names_both_lines() -> None:
    words = fault_of("two_barriers")
    for occurrence in (2, 3):
        assert f"divergence.cu:{line_of('divergence', '__syncthreads();', occurrence)}" in words
    assert "threads 0,2,4" in words and "threads 1,3,5" in words


def test_deadlocked_shuffle() -> None:
    words = fault_of("some_shuffle")
    assert "threads 0-19 wait at a warp operation (mask 0xffffffff)" in words
    assert f"divergence.cu:{line_of('divergence', '__shfl_down_sync')}" in words
    assert "threads 20-63 wait at __syncthreads" in words


def test_shuffle_masks_that_differ() -> None:
    words = fault_of("masks_differ", block=32)
    assert "mismatched warp operations" in words
    assert "mask 0xffffffff" in words and "mask 0xffff00ff" in words


def test_shuffle_from_outside_its_mask() -> None:
    assert "not in the mask of its own warp operation" in fault_of("outside_mask", block=32)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("order", ORDERS)
def test_one_bad_block_of_many_is_found_and_the_device_goes_on(threads: int, order: str) -> None:
    contract = contracts("divergence")["one_block_of_many"]
    device = CpuDevice(threads=threads, order=order)
    out = device.zeros(64 * 1000, np.float32)
    bad, good = (device.plan([Launch(contract, grid, 64, 0, (out, grid))]) for grid in (1000, 700))
    for _ in range(3):
        with pytest.raises(KernelFault, match=r"block 777: .*threads 0-4,6-63 wait .*threads 5 have exited"):
            bad.run()
        good.run()
    np.testing.assert_array_equal(out[: 64 * 700].reshape(700, 64), np.tile(np.arange(64, dtype=np.float32), (700, 1)))


def test_fault_through_the_ucontext_switch() -> None:
    code = (
        "import test_cpu_faults as t\n"
        "assert 'threads 0-39 wait' in t.fault_of('some_exit', ucontext=True)\n"
        "assert 'threads 0-19 wait' in t.fault_of('some_shuffle', ucontext=True)\n"
    )
    done = _python(code, {})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kernel", ["unset_dynamic_shared", "unset_static_shared"])
def test_poison_shows_shared_memory_that_nobody_wrote(kernel: str) -> None:
    out = run(CpuDevice(poison=True), contracts("memory")[kernel])
    assert np.isnan(out[32:]).all() and (out[:32] == 1.0).all()


def test_atomics_on_floats_do_not_compile() -> None:
    with pytest.raises(CompileError, match=rf"float_atomic.cu:{line_of('float_atomic', 'atomicAdd(')}.*atomicAdd"):
        CpuDevice().compile(list(contracts("float_atomic").values()))


def _python(code: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, timeout=300)


def _sanitized(kernel: str) -> subprocess.CompletedProcess[str]:
    try:
        environment = sanitizer_environment()
    except DeviceError as error:
        pytest.skip(str(error))
    blocks = 2 if kernel == "past_the_array" else 1  # its faulty thread is the first of the second block
    code = (
        "import test_cpu_faults as t\n"
        f"t.run(t.CpuDevice(sanitize=True), t.contracts('memory')[{kernel!r}], grid={blocks})\n"
        "print('ran to the end')\n"
    )
    return _python(code, environment)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("past_the_array", "heap-buffer-overflow"),
        ("past_dynamic_shared", "heap-buffer-overflow"),
        ("past_static_shared", "global-buffer-overflow"),
        ("integer_overflow", "signed integer overflow"),
        ("nan_to_int", "nan is outside the range of representable values of type 'int'"),
    ],
)
def test_sanitizers_stop_and_name_the_line(kernel: str, words: str) -> None:
    done = _sanitized(kernel)
    assert done.returncode != 0 and "ran to the end" not in done.stdout
    assert words in done.stderr and "memory.cu:" in done.stderr, done.stderr


def test_sanitizers_let_a_correct_kernel_pass() -> None:
    done = _sanitized("no_fault")
    assert done.returncode == 0 and "ran to the end" in done.stdout, done.stderr


def test_sanitize_without_its_runtime_says_what_to_do() -> None:
    with pytest.raises(DeviceError, match="sanitizer_environment"):
        CpuDevice(sanitize=True)
