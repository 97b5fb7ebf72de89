"""What becomes of a kernel file: which kernels need fibers, what is rewritten, what headers it depends on."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpu_samples import CUDA_SRC, SAMPLE

from foxhunt_cli.device.base import CompileError, DeviceError
from foxhunt_cli.device.cpu_source import KernelUnit, plain_kernels
from foxhunt_cli.kernels.text import blank

KERNEL = """
// launch: threads N, block 64
extern "C" __global__ void work(float* out, int N) {{ {body} }}
"""


def is_plain(body: str, helpers: str = "") -> bool:
    return plain_kernels((helpers + KERNEL.format(body=body),), ("work",)) == {"work"}


@pytest.mark.parametrize(
    "body",
    [
        "out[threadIdx.x] = 1.0f;",
        "// __syncthreads() only in a comment\n out[0] = 1;",
        'log("__syncthreads()");',
        "out[0] = helper(1.0f);",
        "if (N > 3) { for (int i = 0; i < N; ++i) { out[i] = i; } }",
        "atomicAdd(count, 1);",
    ],
)
def test_threads_that_never_meet_run_as_a_loop(body: str) -> None:
    assert is_plain(body, "__device__ float helper(float x) { return 2 * x; }\n")


@pytest.mark.parametrize(
    "body",
    [
        "__syncthreads();",
        "int n = __syncthreads_count(N);",
        "out[0] = __shfl_down_sync(~0u, out[0], 1);",
        "__syncwarp();",
        "unsigned b = __ballot_sync(~0u, N);",
        "__shared__ float tile[3];",
        "extern __shared__ float tile[];",
        "out[0] = outer(1.0f);",
        "MEET(out);",
        "out[0] = templated<4>(1.0f);",
        "out[0] = Box().method();",
        "out[0] = reads_index();",
        "auto f = [&](int i) { __syncthreads(); }; f(1);",
    ],
)
def test_threads_that_may_meet_run_on_fibers(body: str) -> None:
    helpers = """
    #define MEET(p) \\
        do { __syncthreads(); } while (0)
    __device__ float inner(float x) { __syncthreads(); return x; }
    __device__ float outer(float x) { return inner(x) + 1; }
    template <int n> __device__ float templated(float x) { return __shfl_xor_sync(~0u, x, n); }
    struct Box { __device__ float method() const { __syncthreads(); return 1; } };
    __device__ int reads_index() { return blockIdx.x; }
    """
    assert not is_plain(body, helpers)


def test_a_barrier_outside_every_function_makes_all_kernels_suspect() -> None:
    assert not is_plain("out[0] = 1;", "struct S { float x = __shfl_sync(~0u, 1.0f, 0); };\n")


def test_kernels_of_one_file_are_told_apart() -> None:
    assert KernelUnit.of(SAMPLE).plain_kernels == {"scale_rows", "add_int"}


def test_blank_keeps_every_position() -> None:
    text = 'a /* b\n c */ "d // \\" e" // f\ng'
    assert len(blank(text)) == len(text) and blank(text).split() == ["a", "g"] and blank(text).count("\n") == 2


def test_headers_are_the_whole_closure(tmp_path: Path) -> None:
    source = tmp_path / "cuda_src"
    for name, text in {
        "include/a.cuh": '#include "b.cuh"\n#include "generated/c.cuh"\n',
        "include/b.cuh": '#pragma once\n#include "include/a.cuh"\n',
        "generated/c.cuh": "// end\n",
        "family/k.cu": '#include "include/a.cuh"\n' + KERNEL.format(body="out[0] = 1;"),
    }.items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text)
    headers = KernelUnit.of(source / "family" / "k.cu").headers
    assert {p.relative_to(source).as_posix() for p in headers} == {"include/a.cuh", "include/b.cuh", "generated/c.cuh"}


def test_a_unit_keeps_the_lines_of_its_file() -> None:
    unit = KernelUnit.of(SAMPLE)
    written = unit.text().split(f'#line 1 "{SAMPLE}"\n')[1].splitlines()
    for number, line in enumerate(SAMPLE.read_text().splitlines()):
        if "extern" not in line:
            assert written[number] == line


def test_cuda_only_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "cuda_src" / "cuda_only" / "k.cu"
    file.parent.mkdir(parents=True)
    file.write_text(KERNEL.format(body=""))
    with pytest.raises(DeviceError, match="cuda_only"):
        KernelUnit.of(file)


def test_dynamic_shared_memory_of_a_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "h.cuh").write_text("__device__ float* tile() { extern __shared__ float t[]; return t; }\n")
    file = tmp_path / "k.cu"
    file.write_text('#include "h.cuh"\n' + KERNEL.format(body="out[0] = *tile();"))
    with pytest.raises(CompileError, match=r"h.cuh: a header may not declare extern __shared__"):
        _ = KernelUnit.of(file).headers


def test_an_installed_wheel_calls_the_folder_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "foxhunt_cli" / "_cuda_src" / "family" / "k.cu"
    file.parent.mkdir(parents=True)
    file.write_text(KERNEL.format(body=""))
    assert KernelUnit.of(file).root == tmp_path / "foxhunt_cli" / "_cuda_src"


def test_the_samples_are_found() -> None:
    assert KernelUnit.of(SAMPLE).root == CUDA_SRC.resolve()
