"""Every kernel compiles with NVRTC for every supported architecture, on a machine without a GPU or a driver."""

from pathlib import Path

import pytest

from foxhunt_cli.device import nvrtc
from foxhunt_cli.device.base import CompileError
from foxhunt_cli.kernels.contract import parse_file
from foxhunt_cli.kernels.registry import cuda_root

# Machine code for the oldest, the usual and the newest; for those between, all but code generation: what can differ
# there is what __CUDA_ARCH__ guards, and a full compilation of all six would take minutes.
FULL = ("sm_75", "sm_90", "sm_120")
FRONT_END = ("sm_80", "sm_86", "sm_89")
FILES = sorted(cuda_root().rglob("*.cu"))
SYNTAX_ONLY = ("--fdevice-syntax-only",)  # all but code generation, twenty times faster


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("nvrtc")


def test_the_list_of_files_is_not_empty():
    assert FILES


def tasks_for(archs: tuple[str, ...]) -> list[nvrtc.CompileTask]:
    known = [arch for arch in archs if int(arch[3:]) in nvrtc.supported_archs()]
    assert len(known) >= len(archs) - 1, f"NVRTC {nvrtc.version()} knows only {known} of {archs}"
    return [nvrtc.CompileTask(file, arch, (cuda_root(), file.parent)) for file in FILES for arch in known]


def test_every_kernel_compiles_to_machine_code(cache):
    """One call for all, so that all cores work; the message lists every failure with file and line."""
    tasks = tasks_for(FULL)
    binaries = nvrtc.compile_cached(tasks, cache)
    assert len(binaries) == len(tasks) and all(b.read_bytes()[:4] == b"\x7fELF" for b in binaries)


def test_every_kernel_passes_the_front_end_of_the_architectures_between():
    errors = []
    for task in tasks_for(FRONT_END):
        try:
            nvrtc.compile_file(task, SYNTAX_ONLY)
        except CompileError as error:
            errors.append(f"{task.arch}: {error}")
    assert not errors, "\n".join(errors)


def test_every_kernel_compiles_with_a_condition():
    """What a plan compiles where a step is skipped on the device; lines keep their numbers."""
    for file in FILES:
        task = nvrtc.CompileTask(file, "sm_90", (cuda_root(), file.parent), conditional=True)
        assert task.source().count("if (*fh_when == 0) return;") == len(parse_file(file)) > 0
        assert task.source().count("\n") == file.read_text().count("\n")
        nvrtc.compile_file(task, SYNTAX_ONLY)


def test_files_with_instructions_of_hopper_alone_are_compiled_for_it(tmp_path):
    """Whoever includes wgmma.cuh, on the architecture that has these instructions; nobody else."""
    folder = cuda_root() / "cuda_only"
    targets = {
        (name, arch): nvrtc.CompileTask(folder / name, arch, (cuda_root(), folder)).target
        for name in ("gemm_rows.cu", "gemm_tf32.cu")
        for arch in ("sm_80", "sm_90", "compute_90")
    }
    assert targets.pop(("gemm_rows.cu", "sm_90")) == "sm_90a"
    assert all(target == arch for (_, arch), target in targets.items())
    task = nvrtc.CompileTask(folder / "gemm_rows.cu", "sm_90", (cuda_root(), folder))
    empty = nvrtc.compile_source(task.source(), "gemm_rows.cu", task.include_dirs, "sm_90").binary
    assert len(nvrtc.compile_file(task).binary) > 5 * len(empty)  # without these features the kernels have no body


def test_a_condition_is_another_kernel(tmp_path, cache):
    file = write(tmp_path, "c.cu", '// c: one.\n// launch: threads 1, block 1\nextern "C" __global__ void c() {}\n')
    plain, conditional = (nvrtc.CompileTask(file, "sm_90", (), flag) for flag in (False, True))
    assert "void c(const int* fh_when) { if" in conditional.source()
    first, second = nvrtc.compile_cached([plain, conditional], cache)
    assert first != second and first.read_bytes() != second.read_bytes()


def test_front_end_names_the_line(tmp_path):
    bad = write(tmp_path, "bad.cu", "\nint x = absent;\n")
    with pytest.raises(CompileError, match=f"{bad}:2:"):
        nvrtc.compile_file(nvrtc.CompileTask(bad, "sm_86", ()), SYNTAX_ONLY)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_error_names_file_and_line_of_kernel_and_header(tmp_path, cache):
    bad = write(
        tmp_path, "bad.cu", '#include "bad.cuh"\nextern "C" __global__ void k(float* x) {\n    x[0] = nothing;\n}\n'
    )
    header = write(tmp_path, "bad.cuh", "\n\nint also_nothing = absent;\n")
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_cached([nvrtc.CompileTask(bad, "sm_90", (tmp_path,))], cache)
    assert f"{bad}:3:" in str(caught.value) and f"{header}:3:" in str(caught.value)


def test_one_bad_file_does_not_hide_another(tmp_path, cache):
    tasks = [nvrtc.CompileTask(write(tmp_path, f"{n}.cu", "oops\n"), "sm_90", ()) for n in ("one", "two")]
    with pytest.raises(CompileError) as caught:
        nvrtc.compile_cached(tasks, cache, workers=2)
    assert "one.cu:1" in str(caught.value) and "two.cu:1" in str(caught.value)


def test_missing_header_names_the_line(tmp_path):
    file = write(tmp_path, "k.cu", '// first\n#include "absent.cuh"\n')
    with pytest.raises(CompileError, match=rf'{file}:2: no header "absent.cuh"'):
        nvrtc.CompileTask(file, "sm_90", ()).key()


def test_an_edited_header_is_another_kernel(tmp_path, cache):
    """The fault this guards against: a cache keyed by the .cu alone hands out the binary of the old header."""
    file = write(tmp_path, "k.cu", '#include "a.cuh"\nextern "C" __global__ void k(float* x) { x[0] = VALUE; }\n')
    write(tmp_path, "a.cuh", '#include "b.cuh"\n')
    write(tmp_path, "b.cuh", "#define VALUE 1.0f\n")
    task = nvrtc.CompileTask(file, "sm_90", (tmp_path,))
    first = nvrtc.compile_cached([task], cache)
    assert nvrtc.compile_cached([task], cache) == first
    write(tmp_path, "b.cuh", "#define VALUE 2.0f\n")
    second = nvrtc.compile_cached([task], cache)
    assert second != first and second[0].read_bytes() != first[0].read_bytes()


@pytest.mark.parametrize("arch", ["sm_90", "compute_90"])
def test_a_damaged_file_in_the_cache_is_compiled_anew(tmp_path, cache, arch):
    file = write(tmp_path, "d.cu", 'extern "C" __global__ void d(int* x) { x[0] = 1; }\n')
    task = nvrtc.CompileTask(file, arch, (tmp_path,))
    (path,) = nvrtc.compile_cached([task], cache)
    good = path.read_bytes()
    for bad in (good[: len(good) // 2], b"", good[:100] + b"x" + good[101:]):
        path.write_bytes(bad)
        assert nvrtc.compile_cached([task], cache) == [path] and path.read_bytes() == good


def test_progress_counts_only_what_is_compiled(tmp_path, cache):
    file = write(tmp_path, "p.cu", 'extern "C" __global__ void p(int* x) { x[0] = 1; }\n')
    seen: list[tuple[int, int, str]] = []
    task = nvrtc.CompileTask(file, "sm_90", ())
    for _ in range(2):
        nvrtc.compile_cached([task], cache, progress=lambda *args: seen.append(args))
    assert seen == [(1, 1, "p.cu sm_90")]


def test_arithmetic_is_not_contracted_and_denormals_live():
    """a * b + c is two roundings unless fmaf is written, and denormals are kept: what the CPU device computes too."""
    source = 'extern "C" __global__ void k(float* x) { x[0] = x[1] * x[2] + x[3]; }\n'
    ptx = nvrtc.compile_source(source, "k.cu", (), "compute_90").binary.decode(errors="replace")
    assert "fma" not in ptx and ".ftz" not in ptx


def test_arch_for_known_newer_and_older():
    assert nvrtc.arch_for(90) == "sm_90"
    assert nvrtc.arch_for(999) == f"compute_{nvrtc.supported_archs()[-1]}"
    with pytest.raises(nvrtc.DeviceError, match="--device cpu"):
        nvrtc.arch_for(10)
