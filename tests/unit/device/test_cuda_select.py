"""--device: the grammar, what auto does, and what an explicit request says where it cannot be met."""

import sys
import types

import pytest

from foxhunt_cli.device import cuda_errors, select
from foxhunt_cli.device.base import DeviceError


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(cuda_errors, "usable_gpus", lambda: (0, "no NVIDIA GPU or driver (cudaErrorNoDevice)"))


@pytest.mark.parametrize("request_", ["gpu", "cuda:", "cuda:x", "CPU", ""])
def test_grammar(request_):
    with pytest.raises(DeviceError, match="expected auto, cpu, cuda or cuda:N"):
        select.select(request_)


@pytest.mark.parametrize("request_", ["cuda", "cuda:1"])
def test_an_explicit_gpu_is_never_replaced(no_gpu, request_):
    with pytest.raises(DeviceError, match=f"--device {request_}: no NVIDIA GPU.*nvidia-smi.*--device cpu"):
        select.select(request_)


def test_auto_falls_back_and_says_why(no_gpu):
    chosen = select.select("auto", threads=1)
    assert chosen.device.kind == "cpu"
    assert chosen.line.endswith("(1 thread); no NVIDIA GPU or driver (cudaErrorNoDevice)")


def test_cpu_does_not_look_for_gpus(monkeypatch):
    monkeypatch.setattr(cuda_errors, "usable_gpus", lambda: pytest.fail("asked for GPUs"))
    assert select.select("cpu", threads=1).device.kind == "cpu"


def fake_cupy(monkeypatch, get_device_count):
    class CUDARuntimeError(RuntimeError):
        pass

    runtime = types.SimpleNamespace(CUDARuntimeError=CUDARuntimeError)
    runtime.getDeviceCount = lambda: get_device_count(CUDARuntimeError)
    module = types.ModuleType("cupy")
    module.cuda = types.SimpleNamespace(runtime=runtime)
    monkeypatch.setitem(sys.modules, "cupy", module)


def test_runtime_error_of_the_count_means_no_gpu(monkeypatch):
    def count(error):
        raise error("cudaErrorNoDevice: no CUDA-capable device is detected")

    fake_cupy(monkeypatch, count)
    assert cuda_errors.usable_gpus() == (0, "no NVIDIA GPU or driver (cudaErrorNoDevice)")


def test_any_other_error_is_not_swallowed(monkeypatch):
    def count(error):
        raise MemoryError("something else")

    fake_cupy(monkeypatch, count)
    with pytest.raises(MemoryError):
        cuda_errors.usable_gpus()


def test_cupy_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    count, reason = cuda_errors.usable_gpus()
    assert count == 0 and "CuPy is not installed" in reason
