"""The CPU device: arrays, launches, schedules, and what a plan promises."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_samples import SAMPLE, kernels, normal, scale, softmax

from foxhunt_cli.device.base import CopyArray, DeviceError, Fill, Launch, Product
from foxhunt_cli.device.cpu import ALIGNMENT, CpuDevice


def softmax_of(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


# Arrays


@pytest.mark.parametrize("shape", [0, 1, 7, (3, 5), (2, 0, 4), ()])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64])
def test_arrays_are_zero_aligned_and_contiguous(shape: int | tuple[int, ...], dtype: type) -> None:
    array = CpuDevice().zeros(shape, dtype)
    assert array.shape == ((shape,) if isinstance(shape, int) else shape) and array.dtype == dtype
    assert array.flags.c_contiguous and not array.any()
    assert array.size == 0 or array.ctypes.data % ALIGNMENT == 0  # numpy names any address for an empty array


def test_upload_write_and_download_copy() -> None:
    device = CpuDevice()
    host = np.arange(6, dtype=np.float32).reshape(2, 3)
    array = device.upload(host)
    host[:] = -1
    np.testing.assert_array_equal(array, np.arange(6).reshape(2, 3))
    device.write(array, host)
    taken = device.download(array)
    array[:] = 5
    np.testing.assert_array_equal(taken, host)
    with pytest.raises(DeviceError, match=r"float32\(2, 3\), the host data float64\(2, 3\)"):
        device.write(array, host.astype(np.float64))


def test_memory_and_description() -> None:
    device = CpuDevice(threads=2)
    free, total = device.memory()
    assert 0 < free <= total
    assert device.name.endswith("(2 threads)") and device.describe()["kind"] == device.kind == "cpu"


@pytest.mark.parametrize("order", ["", "backward", "random", "random:x", "reverse:1"])
def test_unknown_order(order: str) -> None:
    with pytest.raises(DeviceError, match="'forward', 'reverse' or 'random:<seed>'"):
        CpuDevice(order=order)


# Results


def test_kernels_compute_what_they_say() -> None:
    device = CpuDevice()
    x = normal(device, 37, 100)
    y, z, count = device.zeros(x.shape, np.float32), device.zeros(x.shape, np.float32), device.zeros(1, np.int32)
    scalars = Launch(kernels()["add_int"], 2, 32, 0, (count, 3.5, 5 << 40, 7, 40))
    device.plan([scale(x, y), softmax(x, z), scalars]).run()
    np.testing.assert_array_equal(y, (2 * x.astype(np.float64) + 1).astype(np.float32))
    np.testing.assert_allclose(z, softmax_of(x), rtol=2e-6)
    assert count[0] == 40 * (3 + 5 + 7)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("order", ["forward", "reverse", "random:1", "random:77"])
def test_same_bits_for_every_thread_count_and_order(threads: int, order: str) -> None:
    reference, device = CpuDevice(threads=1), CpuDevice(threads=threads, order=order)
    x = normal(device, 301, 100)
    results = []
    for runs_on in (reference, device):
        y, z = (runs_on.zeros(x.shape, np.float32) for _ in range(2))
        plan = runs_on.plan([scale(x, y), softmax(y, z)])
        for _ in range(3):  # from the second run on, the launch is worth sharing
            plan.run()
        results.append((runs_on.download(y), runs_on.download(z)))
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))


def test_double_computes_in_double() -> None:
    device = CpuDevice(double=True)
    x = normal(device, 20, 100)
    z = device.zeros(x.shape, np.float32)
    assert x.dtype == z.dtype == np.float64
    x += 1e-12 * np.arange(100)  # lost in single precision
    device.plan([softmax(x, z)]).run()
    np.testing.assert_allclose(z, softmax_of(x), rtol=1e-14)


@pytest.mark.parametrize("options", [{}, {"ucontext": True}])
def test_each_way_to_switch_stacks_gives_the_same_bits(options: dict[str, bool]) -> None:
    """In a process of its own: one runtime fits."""
    code = (
        "import sys, numpy as np, cpu_samples as s\n"
        f"device = s.CpuDevice(threads=2, **{options!r})\n"
        "x = s.normal(device, 64, 100); z = device.zeros(x.shape, np.float32)\n"
        "device.plan([s.softmax(x, z)] * 3).run(); sys.stdout.buffer.write(z.tobytes())\n"
    )
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[3])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    device = CpuDevice(threads=1)
    x = normal(device, 64, 100)
    z = device.zeros(x.shape, np.float32)
    device.plan([softmax(x, z)]).run()
    assert done.stdout == z.tobytes()


def test_a_second_kind_of_runtime_is_refused() -> None:
    CpuDevice().compile(list(kernels().values()))
    with pytest.raises(DeviceError, match="process of its own"):
        CpuDevice(ucontext=True).compile(list(kernels().values()))


# Plans


def test_run_and_run_eager_agree() -> None:
    device = CpuDevice()
    x, w = normal(device, 64, 48), normal(device, 48, 32, seed=1)
    arrays = [device.zeros((64, 48), np.float32), *(device.zeros((64, 32), np.float32) for _ in range(3))]
    y, product, z, copy = arrays
    multiply, add = Product(y, w, product), Product(y, w, product, accumulate=True)
    plan = device.plan([scale(x, y), Fill(product), multiply, add, add, softmax(product, z), CopyArray(z, copy), add])
    results = []
    for run in (plan.run, plan.run_eager, plan.run):
        run()
        results.append([device.download(a).tobytes() for a in arrays])
        for a in arrays:
            a[...] = np.nan
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_nothing_is_allocated_while_a_plan_runs(trans: bool, accumulate: bool) -> None:
    device = CpuDevice()
    a, b, out = (normal(device, 256, 256 + 16 * i) for i in range(3))
    product = Product(a, b[:, 16:], out[:, 8:264], trans, trans, accumulate)
    y = device.zeros(a.shape, np.float32)
    plan = device.plan([product, scale(a, y), Fill(out), CopyArray(a, y)])
    plan.run()
    tracemalloc.start()
    try:
        plan.run()
        plan.run_eager()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024, f"{peak} bytes; an array here has {a.nbytes}"


@pytest.mark.parametrize("eager", [False, True])
def test_a_condition_is_read_when_its_turn_comes(eager: bool) -> None:
    """A flag that an earlier operation of the same plan sets opens a launch, products and a fill; a closed one none."""
    device = CpuDevice()
    x = normal(device, 8, 8)
    one, opened, closed = (device.upload(np.array([value], np.int32)) for value in (1, 0, 0))
    operations = [CopyArray(one, opened)]
    outs = {}
    for flag in (opened, closed, None):
        scaled, product, kept = device.zeros((8, 8), np.float32), normal(device, 8, 8, seed=1), normal(device, 8)
        operations += [
            replace(scale(x, scaled), when=flag),
            Product(x, x, product, trans_a=True, when=flag),
            Product(x, x, product, accumulate=True, when=flag),
            Fill(kept, when=flag),
        ]
        outs[id(flag)] = (scaled, product, kept)
    before = [np.array(array) for array in outs[id(closed)]]
    plan = device.plan(operations)
    (plan.run_eager if eager else plan.run)()
    for with_flag, without, skipped, start in zip(
        outs[id(opened)], outs[id(None)], outs[id(closed)], before, strict=True
    ):
        np.testing.assert_array_equal(with_flag, without)
        np.testing.assert_array_equal(skipped, start)
        assert (without != start).any()
    with pytest.raises(DeviceError, match="a condition is one int32"):
        device.plan([Fill(x, when=device.zeros(1, np.float32))])


def test_an_empty_plan_runs() -> None:
    plan = CpuDevice().plan([])
    plan.run()
    plan.run_eager()


def _bad_operations(device: CpuDevice) -> dict[str, tuple[object, str]]:
    x, y = normal(device, 8, 8), device.zeros((8, 8), np.float32)
    contract = kernels()["scale_rows"]
    where = rf"sample.cu:{contract.line}: kernel scale_rows: "
    return {
        "missing argument": (Launch(contract, 1, 64, 0, (x, y)), where + "takes 3 arguments, got 2"),
        "dtype": (Launch(contract, 1, 64, 0, (x.astype(np.float64), y, 64)), where + "parameter x: expected float32"),
        "strides": (Launch(contract, 1, 64, 0, (x[:, :4], y, 32)), where + "parameter x must be a C-contiguous"),
        "not an array": (Launch(contract, 1, 64, 0, (3, y, 32)), where + "parameter x must be .*got int 3"),
        "float for int": (Launch(contract, 1, 64, 0, (x, y, 1.5)), where + "parameter N: 1.5 is no int"),
        "int too large": (Launch(contract, 1, 64, 0, (x, y, 2**31)), where + "parameter N"),
        "wide block": (Launch(contract, 1, 1025, 0, (x, y, 64)), where + "grid 1, block 1025"),
        "no grid": (Launch(contract, 0, 64, 0, (x, y, 64)), where + "grid 0"),
        "shapes": (Product(x, y[:4], y), r"Product: op\(a\) is \(8, 8\), op\(b\) \(4, 8\)"),
        "nothing": (Product(x[:, :0], y[:0], y), "expected one element or more"),
        "aliasing": (Product(x, y, x), "out shares memory"),
        "columns": (Product(x, y[:, ::2], device.zeros((8, 4), np.float32)), "must be adjacent"),
        "mixed dtypes": (Product(x, y.astype(np.float64), y), "dtypes float32, float64"),
        "copy": (CopyArray(x, y[:4]), r"src is float32\(8, 8\), dst float32\(4, 8\)"),
        "fill": (Fill(x[:, :2]), "Fill: array must be"),
        "nonsense": ("launch", "got str"),
    }


@pytest.mark.parametrize("case", _bad_operations(CpuDevice()))
def test_operations_that_cannot_run_are_refused_when_planned(case: str) -> None:
    operation, words = _bad_operations(device := CpuDevice())[case]
    with pytest.raises(DeviceError, match=words):
        device.plan([operation])


# Processes and threads


def test_a_forked_child_can_launch() -> None:
    device = CpuDevice(threads=2)
    x = normal(device, 2000, 100)
    z = device.zeros(x.shape, np.float32)
    plan = device.plan([softmax(x, z)])
    for _ in range(3):
        plan.run()  # the helpers exist now, and a child will not have them
    expected = z.tobytes()
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # a hang ends the child with a signal, which the parent reports
        z[...] = 0
        plan.run()
        os._exit(0 if z.tobytes() == expected else 1)
    assert os.waitpid(child, 0)[1] == 0, "the child hung (14) or computed something else"
    plan.run()
    assert z.tobytes() == expected


def test_python_threads_may_run_plans_at_once() -> None:
    device = CpuDevice(threads=3)
    inputs = [normal(device, 300, 100, seed=seed) for seed in range(4)]
    outputs = [device.zeros(x.shape, np.float32) for x in inputs]
    plans = [device.plan([softmax(x, z)] * 20) for x, z in zip(inputs, outputs, strict=True)]
    workers = [threading.Thread(target=plan.run) for plan in plans]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for x, z in zip(inputs, outputs, strict=True):
        np.testing.assert_allclose(z, softmax_of(x), rtol=2e-6)


# Cost


def _median_seconds(run: object, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def test_a_launch_costs_microseconds_alone_and_less_in_a_list() -> None:
    """Bounds are several times what is measured on an idle machine (0.8 us and 0.1 us): test machines are busy."""
    device = CpuDevice()
    x = normal(device, 8)
    launch = scale(x, device.zeros(8, np.float32))
    alone, listed = device.plan([launch]), device.plan([launch] * 1000)
    alone.run()
    assert _median_seconds(alone.run, 2000) < 5e-6
    assert _median_seconds(listed.run, 50) / 1000 < 1e-6


def test_everything_cached_loads_at_once() -> None:
    CpuDevice().compile(list(kernels().values()))
    start = time.perf_counter()
    device = CpuDevice()
    device.compile(list(kernels(SAMPLE).values()))
    assert time.perf_counter() - start < 0.5
