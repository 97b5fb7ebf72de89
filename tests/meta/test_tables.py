"""Generated files are up to date, and the tables agree with the kernels they describe."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

import foxhunt_cli
from foxhunt_cli.device.cpu_source import KernelUnit
from foxhunt_cli.isv.header import render_slots, render_structure
from foxhunt_cli.isv.table import ISV_SIZE, by_name, slots
from foxhunt_cli.kernels.contract import KernelContract
from foxhunt_cli.kernels.index import replace_index
from foxhunt_cli.kernels.registry import GENERIC_FOLDERS, cuda_root, gpu_kernels, kernels
from foxhunt_cli.kernels.slots import WHOLE, touched
from foxhunt_cli.nets.params import CHUNK
from foxhunt_cli.pipeline.tables import buffers

_ASSIGNED = re.compile(r"isv\[ISV_(\w+?)(?:\s*\+[^\]]*)?\]\s*(?:[-+*]?=)(?!=)")


@cache
def headers(file: Path) -> str:
    """Text of every header that a kernel file includes, directly or not."""
    return "\n".join(KernelUnit.of(file).headers.values())


def own_function(contract: KernelContract) -> str:
    """Body of the function that does a kernel's work, where it stands in a header so that a fused kernel can call it:
    the kernel's name without rl_ and what part of it that is (a row, an item, a block, one thread, the finish)."""
    name = contract.name.removeprefix("rl_")
    function = re.compile(rf"static __device__ inline [\w ]+? {name}_(?:row|item|block|thread|finish)\(.*?\n}}\n", re.S)
    return "".join(function.findall(headers(contract.file)))


@cache
def bodies() -> dict[str, str]:
    """Text of each kernel, its comment included, up to the next kernel's comment, and of the function it calls."""
    found = {}
    for contract in kernels().values():
        lines = contract.file.read_text().splitlines()
        stop = next((i for i in range(contract.line, len(lines)) if lines[i].startswith("}")), len(lines))
        start = contract.line - 1
        while start and lines[start - 1].startswith("//"):
            start -= 1
        found[contract.name] = "\n".join(lines[start : stop + 1]) + own_function(contract)
    return found


def test_generated_headers_are_up_to_date() -> None:
    generated = cuda_root() / "generated"
    assert (generated / "isv_slots.cuh").read_text() == render_slots(), "run: python -m foxhunt_cli.isv.header"
    assert (generated / "structure.cuh").read_text() == render_structure(), "run: python -m foxhunt_cli.isv.header"


def test_kernel_constants_equal_the_python_ones() -> None:
    assert f"#define CHUNK {CHUNK} " in (cuda_root() / "nets" / "adam.cuh").read_text()
    assert all(row.dims == str(ISV_SIZE) for name, row in buffers().items() if name == "isv")


@pytest.mark.parametrize("name", sorted(kernels()))
def test_a_slot_is_written_by_its_owner_alone(name: str) -> None:
    writers = {name, *kernels()[name].fuses}
    for slot in _ASSIGNED.findall(bodies()[name]):
        assert by_name()[slot].owner in writers, f"{name} writes {slot}, whose owner is '{by_name()[slot].owner}'"


def test_every_owner_that_exists_names_its_slots() -> None:
    """By name, or as an offset from another slot of the same owner a few numbers below."""
    for slot in slots():
        if slot.owner in kernels():
            text = kernels()[slot.owner].file.read_text() + own_function(kernels()[slot.owner])
            block = [s for s in slots() if s.owner == slot.owner and 0 <= slot.number - s.number <= 11]
            takes_a_number = any(p.name == "slot" for p in kernels()[slot.owner].params)
            named = any(f"ISV_{s.name}" in text for s in block)
            assert named or takes_a_number, f"{slot.owner} does not name {slot.name}"


def test_every_tunable_is_read() -> None:
    """By a kernel that does more than copy the vector, or by name on the host: a setting that nobody reads is a lie."""
    every = [touched(contract).reads for contract in (*kernels().values(), *gpu_kernels().values())]
    read = frozenset[int | str]().union(*(slots_of_kernel for slots_of_kernel in every if slots_of_kernel != WHOLE))
    package = Path(foxhunt_cli.__file__).parent
    host = "\n".join(p.read_text() for f in ("nets", "pipeline", "market", "train") for p in (package / f).glob("*.py"))
    tunables = [slot for slot in slots() if slot.kind == "tunable"]
    assert not [s.name for s in tunables if s.number not in read and f'"{s.name}"' not in host]


def test_every_kernel_is_run_by_an_oracle() -> None:
    """By name, in the text of the oracles or of the stage lists that oracles play."""
    package = Path(foxhunt_cli.__file__).parent
    folders = ("oracles", "nets", "pipeline", "replay", "market")
    text = "\n".join(p.read_text() for folder in folders for p in (package / folder).glob("*.py"))
    missing = [name for name in kernels() if f'"{name}"' not in text]
    assert not missing, f"no oracle or list names {missing}"


def test_every_kernel_comment_says_what_it_is_for() -> None:
    short = [c.name for c in kernels().values() if len(c.summary) < 10]
    assert not short


def test_every_folder_of_kernels_is_known() -> None:
    known = {*GENERIC_FOLDERS, "include", "generated", "cuda_only"}
    assert {p.name for p in cuda_root().iterdir() if p.is_dir()} <= known


def test_index_of_the_kernels_is_up_to_date() -> None:
    text = (cuda_root() / "README.md").read_text()
    assert replace_index(text) == text, "run: python -m foxhunt_cli.kernels.index"
