"""The CUDA device on a real GPU: arrays, packing, graphs, faults, matrix products, shared headers.

Runs where a GPU is usable; elsewhere every test is skipped with the reason that the device itself gives.
"""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foxhunt_cli.device import cuda, rng
from foxhunt_cli.device.base import CopyArray, DeviceError, Fill, Launch, Product
from foxhunt_cli.kernels.contract import parse_file

GPUS, REASON = cuda.usable_gpus()
pytestmark = pytest.mark.skipif(GPUS == 0, reason=f"no GPU test ran: {REASON}")

SAMPLE = Path(__file__).parent / "kernels" / "gpu_sample.cu"


@pytest.fixture(scope="module")
def device():
    return cuda.CudaDevice(0)


@pytest.fixture(scope="module")
def kernels():
    return {c.name: c for c in parse_file(SAMPLE)}


def launch(contract, grid, block, *args):
    return Launch(contract, grid, block, 0, args)


def test_arrays_go_there_and_back(device):
    host = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    array = device.upload(host)
    assert np.array_equal(device.download(array), host)
    device.write(array[1:3], host[3:5])
    assert np.array_equal(device.download(array)[1:3], host[3:5])
    device.write(array[:, 2:4], host[:, 4:6])
    assert np.array_equal(device.download(array[:, 2:4]), host[:, 4:6])
    assert not device.download(device.zeros((3, 3), np.int64)).any()
    with pytest.raises(DeviceError, match="write: the array is"):
        device.write(array, host[:2])


def test_float_scalars_go_over_as_float32(device, kernels):
    x, out = device.upload(np.ones(300, np.float32)), device.zeros(300, np.float32)
    device.plan([launch(kernels["add_scaled"], 3, 128, x, out, 0.25, 300)]).run_eager()
    assert (device.download(out) == 0.25).all()


def test_wrong_arguments_name_kernel_parameter_expected_and_got(device, kernels):
    x, out = device.zeros(8, np.float32), device.zeros(8, np.float32)
    contract = kernels["add_scaled"]
    wrong = [
        ((device.zeros(8, np.float64), out, 1.0, 8), "parameter x: expected dtype float32, got float64"),
        ((device.zeros((8, 2), np.float32)[:, 0], out, 1.0, 8), "parameter x: expected a contiguous array"),
        ((np.zeros(8, np.float32), out, 1.0, 8), "parameter x: expected an array of this device"),
        ((x, out, 1.0, 2.5), "parameter N: expected int"),
        ((x, out, 1.0, 1 << 40), "parameter N: .* does not fit int"),
        ((x, out, 1.0), "4 arguments expected, got 3"),
    ]
    for args, message in wrong:
        with pytest.raises(DeviceError, match=message):
            device.plan([launch(contract, 1, 128, *args)])
    with pytest.raises(DeviceError, match="a block of 2048 threads"):
        device.plan([launch(contract, 1, 2048, x, out, 1.0, 8)])
    with pytest.raises(DeviceError, match="a grid of 0 blocks"):
        device.plan([launch(contract, 0, 128, x, out, 1.0, 8)])


def test_products_and_sums_round_twice(device, kernels):
    """--fmad=false: the same bits as numpy's float32, denormals included."""
    gen = np.random.default_rng(1)
    x, y = (gen.standard_normal(4096).astype(np.float32) for _ in range(2))
    x[:8] = np.float32(1e-40)
    out = device.zeros(4096, np.float32)
    device.plan([launch(kernels["unfused"], 32, 128, device.upload(x), device.upload(y), out, 4096)]).run()
    assert np.array_equal(device.download(out), x * y + x)


@pytest.mark.parametrize("block", [32, 96, 256, 1024])
def test_reductions(device, kernels, block):
    x = np.random.default_rng(block).standard_normal(block).astype(np.float32)
    outs = [device.zeros(block, t) for t in (np.float32,) * 3 + (np.int32,) * 2]
    device.plan([launch(kernels["reductions"], 1, block, device.upload(x), *outs)]).run_eager()
    total, top, low, scan, all_ = map(device.download, outs)
    assert (total == total[0]).all() and abs(total[0] - x.sum(dtype=np.float64)) < 1e-4
    assert (top == x.max()).all() and (low == x.min()).all()
    counts = np.arange(block) % 7
    assert np.array_equal(scan, np.cumsum(counts) - counts) and (all_ == counts.sum()).all()


def test_a_nan_survives_the_reductions(device, kernels):
    x = np.ones(64, np.float32)
    x[40] = np.nan
    outs = [device.zeros(64, t) for t in (np.float32,) * 3 + (np.int32,) * 2]
    device.plan([launch(kernels["reductions"], 1, 64, device.upload(x), *outs)]).run_eager()
    assert all(np.isnan(device.download(o)).all() for o in outs[:3])


def test_random_numbers_are_the_twins(device, kernels):
    states = rng.seed_states(9, "draw", 1000)
    on_gpu, out = device.upload(states), device.zeros(1000, np.float32)
    device.plan([launch(kernels["draw"], 16, 64, on_gpu, out, 1000)]).run_eager()
    expected, after = rng.uniform01(states)
    assert np.array_equal(device.download(out), expected) and np.array_equal(device.download(on_gpu), after)


def mixed_plan(device, kernels, use_graph, branches=1):
    """Every kind of operation, and state that each run carries on."""
    gen = np.random.default_rng(5)
    x = device.upload(gen.standard_normal(128 * 64).astype(np.float32))
    state, copy = device.zeros(128 * 64, np.float32), device.zeros(128 * 64, np.float32)
    long_a, long_b = (device.upload(gen.standard_normal((20000, n)).astype(np.float32)) for n in (56, 24))
    gram, small = device.zeros((56, 24), np.float32), device.zeros((64, 64), np.float32)
    operations = [
        launch(kernels["add_scaled"], 64, 128, x, state, 0.5, 128 * 64),
        CopyArray(state, copy),
        Product(long_a, long_b, gram, trans_a=True, accumulate=True),
        Product(copy.reshape(128, 64), x.reshape(128, 64), small, trans_a=True),
        Fill(copy),
    ]
    return device.plan(operations, use_graph=use_graph, branches=branches), (state, copy, gram, small)


@pytest.mark.parametrize("branches", [1, 3])
def test_graph_equals_eager_and_allocates_nothing(device, kernels, branches):
    graph, by_graph = mixed_plan(device, kernels, True, branches)
    eager, by_eager = mixed_plan(device, kernels, False)
    graph.run()
    before = device.pool_usage()
    for _ in range(4):
        graph.run()
    device.synchronize()
    assert device.pool_usage() == before
    for _ in range(5):
        eager.run()
    for a, b in zip(by_graph, by_eager, strict=True):
        assert np.array_equal(device.download(a), device.download(b))
    graph.run_eager()
    eager.run_eager()
    for a, b in zip(by_graph, by_eager, strict=True):
        assert np.array_equal(device.download(a), device.download(b))


@pytest.mark.parametrize("branches", [2, 5, 20])
def test_branches_run_beside_each_other_and_meet(device, kernels, branches):
    """Chains that sum into one array now and then, with products in two passes, which need room of their own."""
    gen = np.random.default_rng(8)
    host = [gen.standard_normal((20000, 24)).astype(np.float32) for _ in range(4)]
    results = []
    for use_graph in (True, False):
        long, total = [device.upload(h) for h in host], device.zeros((24, 24), np.float32)
        grams, operations = [device.zeros((24, 24), np.float32) for _ in host], []
        for number in range(12):
            rows, gram = long[number % 4], grams[number % 4]
            operations += [
                launch(
                    kernels["add_scaled"], 200, 128, rows.reshape(-1)[:25600], rows.reshape(-1)[25600:51200], 0.1, 25600
                ),
                Product(rows, rows, gram, trans_a=True, accumulate=number % 3 == 0),
            ]
            if number % 5 == 4:
                operations += [
                    launch(kernels["add_scaled"], 5, 128, g.reshape(-1), total.reshape(-1), 0.5, 576) for g in grams
                ]
        plan = device.plan(operations, use_graph=use_graph, branches=branches)
        for _ in range(3):
            plan.run()
        results.append([device.download(array) for array in (*long, *grams, total)])
        if use_graph:
            assert 1 < plan.schedule.branches <= branches
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("use_graph", [False, True])
def test_a_condition_is_read_when_its_turn_comes(device, kernels, use_graph):
    """A flag that the same plan sets opens a launch, products of one and of several passes, a fill; a shut one none."""
    gen = np.random.default_rng(6)
    x = device.upload(gen.standard_normal(128).astype(np.float32))
    long_a, long_b = (device.upload(gen.standard_normal((20000, n)).astype(np.float32)) for n in (56, 24))
    start = [gen.standard_normal(shape).astype(np.float32) for shape in (128, (56, 24), (24, 24), 128)]
    one, opened, closed = (device.upload(np.array([value], np.int32)) for value in (1, 0, 0))
    operations, outs = [CopyArray(one, opened)], []
    for flag in (opened, None, closed):
        scaled, gram, small, kept = map(device.upload, start)
        operations += [
            replace(launch(kernels["add_scaled"], 1, 128, x, scaled, 0.5, 128), when=flag),
            Product(long_a, long_b, gram, trans_a=True, accumulate=True, when=flag),
            Product(long_b[:24], long_b[:24], small, when=flag),
            Fill(kept, when=flag),
        ]
        outs.append((scaled, gram, small, kept))
    plan = device.plan(operations, use_graph=use_graph)
    plan.run()
    plan.run()
    got = [[device.download(array) for array in group] for group in outs]
    for with_flag, without, skipped, begin in zip(*got, start, strict=True):
        assert np.array_equal(with_flag, without) and np.array_equal(skipped, begin) and (without != begin).any()


SIZES = [(1, 1, 1), (3, 5, 7), (16, 128, 256), (64, 64, 64), (130, 161, 33), (512, 296, 128), (1000, 231, 128)]
SIZES += [(4096, 11, 128), (4096, 512, 128), (5000, 56, 56), (128, 296, 20000), (56, 128, 5001), (128, 11, 30000)]
# Largest error over the largest result: TF32 keeps 10 bits of mantissa (2^-11 a factor); float32 sums of 30000 terms.
TOLERANCE = {"tf32": 2e-3, "fp32": 2e-5}


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("pad", [0, 4, 3])
def test_products_against_float64(precision, trans, pad):
    device = cuda.CudaDevice(0)
    if precision == "tf32" and device.precision != "tf32":
        pytest.skip(f"{device.name} has no TF32")
    device = cuda.CudaDevice(0, precision=precision)
    gen = np.random.default_rng(pad)
    for m, n, k in SIZES:
        # Column slices of wider matrices: rows strided, for pad 3 also misaligned.
        rows_a, cols_a = (k, m) if trans[0] else (m, k)
        rows_b, cols_b = (n, k) if trans[1] else (k, n)
        hosts = [
            gen.standard_normal((r, c + pad)).astype(np.float32)
            for r, c in ((rows_a, cols_a), (rows_b, cols_b), (m, n))
        ]
        a, b, out = (device.upload(h) for h in hosts)
        accumulate = pad == 4
        view = out[:, pad:]
        plan = device.plan([Product(a[:, pad:], b[:, pad:], view, *trans, accumulate)])
        plan.run()
        got = device.download(out)
        wide_a, wide_b = (h[:, pad:].astype(np.float64) for h in hosts[:2])
        expected = (wide_a.T if trans[0] else wide_a) @ (wide_b.T if trans[1] else wide_b)
        expected += hosts[2][:, pad:] if accumulate else 0
        error = np.abs(got[:, pad:] - expected).max() / np.abs(expected).max()
        assert error < TOLERANCE[precision], (m, n, k, error)
        assert np.array_equal(got[:, :pad], hosts[2][:, :pad]), "wrote outside its columns"
        if not accumulate:
            plan.run()
            assert np.array_equal(device.download(out), got), "not the same bits twice"


def test_a_nan_survives_a_product(device):
    a = np.ones((64, 32), np.float32)
    a[5, 7] = np.nan
    out = device.zeros((64, 16), np.float32)
    device.plan([Product(device.upload(a), device.upload(np.ones((32, 16), np.float32)), out)]).run()
    got = device.download(out)
    assert np.isnan(got[5]).all() and np.isfinite(np.delete(got, 5, 0)).all()


def test_product_refuses_its_own_operand(device):
    a = device.zeros((32, 32), np.float32)
    with pytest.raises(DeviceError, match="out overlaps a"):
        device.plan([Product(a, device.zeros((32, 32), np.float32), a)])


def test_out_of_memory_says_what_to_do(device):
    with pytest.raises(DeviceError, match="Lower --batch"):
        device.zeros(1 << 44, np.float32)


def test_no_such_gpu():
    with pytest.raises(DeviceError, match="there is no GPU 99"):
        cuda.CudaDevice(99)


def test_description_and_timing(device, kernels):
    facts = device.describe()
    assert facts["kind"] == "cuda" and facts["name"] == device.name and facts["precision"] in cuda.PRECISIONS
    assert {"driver", "runtime", "nvrtc", "cupy", "compute_capability", "memory_bytes"} <= set(facts)
    x, out = device.zeros(1024, np.float32), device.zeros(1024, np.float32)
    times = device.time(device.plan([launch(kernels["add_scaled"], 8, 128, x, out, 1.0, 1024)]), 5)
    assert len(times) == 5 and all(t > 0 for t in times)


def test_a_stray_write_is_a_kernel_fault():
    """In a process of its own: a fault ends the process's use of the GPU."""
    script = f"""
from pathlib import Path
import numpy as np
from foxhunt_cli.device.base import KernelFault, Launch
from foxhunt_cli.device.cuda import CudaDevice
from foxhunt_cli.kernels.contract import parse_file
device = CudaDevice(0)
contract = {{c.name: c for c in parse_file(Path({str(SAMPLE)!r}))}}["stray"]
try:
    device.plan([Launch(contract, 1, 1, 0, (device.zeros(8, np.float32),))], use_graph=False).run()
    device.synchronize()
except KernelFault as fault:
    print("caught:", fault)
"""
    root = Path(cuda.__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root)
    assert "caught: a kernel faulted" in done.stdout, done.stderr
