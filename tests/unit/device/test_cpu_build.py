"""The compiler and the cache of the CPU device."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cpu_samples import CUDA_SRC, kernels, normal, scale

from foxhunt_cli.device import cpu_build
from foxhunt_cli.device.base import CompileError, DeviceError
from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.device.seal import is_whole
from foxhunt_cli.kernels.contract import parse_file


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the sample kernels that a test may edit."""
    shutil.copytree(CUDA_SRC, tmp_path / "cuda_src")
    return tmp_path / "cuda_src"


def libraries(cache: Path) -> set[str]:
    return {p.name for p in cache.iterdir()}


def scaled_ones(source: Path, cache: Path) -> float:
    device = CpuDevice(cache_dir=cache)
    x, y = device.upload(np.ones(4, np.float32)), device.zeros(4, np.float32)
    device.plan([scale(x, y, source / "sample" / "sample.cu")]).run()
    return float(y[0])


def test_an_edited_header_is_compiled_anew_and_an_old_one_found_again(source: Path, tmp_path: Path) -> None:
    cache, header = tmp_path / "cache", source / "include" / "scale.cuh"
    before = header.read_text()
    assert scaled_ones(source, cache) == 3.0
    first = libraries(cache)
    header.write_text(before.replace("2.0f", "5.0f"))
    assert scaled_ones(source, cache) == 6.0
    second = libraries(cache)
    assert len(second - first) == 1
    header.write_text(before)
    assert scaled_ones(source, cache) == 3.0
    assert libraries(cache) == second


def test_progress_counts_what_is_compiled_and_nothing_when_cached(source: Path, tmp_path: Path) -> None:
    contracts = parse_file(source / "sample" / "sample.cu")
    calls: list[tuple[int, int, str]] = []
    for _ in range(2):
        CpuDevice(cache_dir=tmp_path / "cache").compile(contracts, lambda *call: calls.append(call))
    assert [call[:2] for call in calls] == [(1, 2), (2, 2)] and {call[2] for call in calls} == {"sample", "runtime"}


@pytest.mark.parametrize("damage", ["half", "empty", "bit", "tail"])
def test_a_damaged_library_in_the_cache_is_compiled_anew(source: Path, tmp_path: Path, damage: str) -> None:
    """Loaded as it is, half a library ends the process by SIGBUS."""
    cache = tmp_path / "cache"
    assert scaled_ones(source, cache) == 3.0
    (library,) = cache.glob("sample-*.so")
    good = library.read_bytes()
    flipped = bytearray(good)
    flipped[len(good) // 3] ^= 4
    library.unlink()  # this process has it mapped, and unloads it when it ends
    library.write_bytes(
        {"half": good[: len(good) // 2], "empty": b"", "bit": bytes(flipped), "tail": good[:-1]}[damage]
    )
    code = "import sys; from pathlib import Path; from test_cpu_build import scaled_ones\n"
    code += "print(scaled_ones(Path(sys.argv[1]), Path(sys.argv[2])))"
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", code, str(source), str(cache)], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "3.0\n"), done.stderr
    (again,) = cache.glob("sample-*.so")
    assert is_whole(again)


def test_two_processes_may_build_at_once(source: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; import test_cpu_build as t\n"
        "assert t.scaled_ones(Path(sys.argv[1]), Path(sys.argv[2])) == 3.0\n"
    )
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[3])]
    command = [sys.executable, "-c", code, str(source), str(tmp_path / "cache")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()
    assert all(name.endswith(".so") for name in libraries(tmp_path / "cache")), "scratch files were left behind"
    assert len(libraries(tmp_path / "cache")) == 2


def test_errors_name_every_broken_file_and_its_own_lines(tmp_path: Path) -> None:
    contracts = []
    for name, statement in (("one", "undeclared = 1;"), ("two", "double x = tex2D(0);")):
        file = tmp_path / "cuda_src" / f"{name}.cu"
        file.parent.mkdir(exist_ok=True)
        file.write_text(
            f'// launch: threads N, block 1\nextern "C" __global__ void {name}(int N) {{\n    {statement}\n}}\n'
        )
        contracts += parse_file(file)
    with pytest.raises(CompileError) as caught:
        CpuDevice(cache_dir=tmp_path / "cache").compile(contracts)
    words = str(caught.value)
    assert "one.cu:3:" in words and "undeclared" in words and "two.cu:3:" in words and "tex2D" in words


def test_a_frame_that_would_overflow_a_fiber_does_not_compile(tmp_path: Path) -> None:
    file = tmp_path / "big.cu"
    file.write_text(
        '// launch: blocks N, block 32\nextern "C" __global__ void big(float* out, int N) {\n'
        "    float many[20000];\n    for (int i = 0; i < 20000; ++i) many[i] = out[i % N];\n"
        "    __syncthreads();\n    out[threadIdx.x] = many[(int)out[0]];\n}\n"
    )
    with pytest.raises(CompileError, match="frame size"):
        CpuDevice(cache_dir=tmp_path / "cache").compile(parse_file(file))


def test_an_unwritable_cache_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DeviceError, match="cannot write the kernel cache .*set XDG_CACHE_HOME"):
        CpuDevice(cache_dir=tmp_path / "file" / "cache").compile(list(kernels().values()))


def test_the_cache_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cpu_build.Builder(cpu_build.BuildOptions()).cache_dir == tmp_path / "foxhunt" / "cpu"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cpu_build.Builder(cpu_build.BuildOptions()).cache_dir == Path.home() / ".cache" / "foxhunt" / "cpu"


def test_no_compiler_names_both_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DeviceError, match=r"apt install g\+\+.*pip install foxhunt\[cpu\]"):
        CpuDevice()


def test_cxx_is_taken_first_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"{shutil.which('g++') or 'c++'} -pipe")
    assert cpu_build.find_compiler().command[1] == "-pipe"
    monkeypatch.setenv("CXX", "no-such-compiler -O3")
    with pytest.raises(DeviceError, match="CXX is set to 'no-such-compiler -O3'"):
        cpu_build.find_compiler()


def test_the_compiler_and_the_processor_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = cpu_build.Builder(cpu_build.BuildOptions())
    before = builder.runtime().path
    monkeypatch.setattr(cpu_build, "cpu_identity", lambda: "another processor")
    assert builder.runtime().path != before


def test_options_have_libraries_of_their_own() -> None:
    unit = cpu_build.KernelUnit.of(CUDA_SRC / "sample" / "sample.cu")
    options = [cpu_build.BuildOptions(), cpu_build.BuildOptions(double=True), cpu_build.BuildOptions(sanitize=True)]
    assert len({cpu_build.Builder(o).kernels(unit).path for o in options}) == 3


def test_the_loop_over_threads_is_vectorised(tmp_path: Path) -> None:
    """The reason for rewriting the kernels without barriers; by its effect: under a nanosecond an element."""
    device = CpuDevice(threads=1)
    x = normal(device, 64 * 256)
    plan = device.plan([scale(x, device.zeros(x.shape, np.float32))])
    unit = cpu_build.KernelUnit.of(CUDA_SRC / "sample" / "sample.cu")
    target = device._builder.kernels(unit)
    source = tmp_path / "unit.cpp"
    source.write_text(target.text)
    command = [*device._builder.compiler.command, *target.flags, *(f"-I{i}" for i in target.includes), str(source)]
    report = "-Rpass=loop-vectorize" if "clang" in device._builder.compiler.version else "-fopt-info-vec"
    done = subprocess.run([*command, report, "-o", str(tmp_path / "unit.so")], capture_output=True, text=True)
    assert "vectorized" in done.stdout + done.stderr
    plan.run()
