"""Kernel contracts: what the signature and the comment of each ``__global__`` function promise.

Owns the parser of ``.cu`` files. It reads text only: it neither compiles nor launches anything.

A kernel's contract is its signature plus machine-readable lines of the comment directly above it::

    // rl_example: one sentence of purpose.
    // launch: threads B*T, block 64
    // updates: position_lots, cash_ticks
    extern "C" __global__ void rl_example(const float* reward, float* out, float* isv, int B, int T) {

``launch`` is ``threads N`` (one thread an item; grid = ceil(N / block)) or ``blocks N`` (one block an
item), then ``, block E`` and, where dynamic shared memory is used, ``, shared BYTES``. N, E and BYTES are
integer expressions over dimension names. ``updates`` lists the non-const pointers that are read as well as
written; every other non-const pointer is an output only. ``fuses: a, b`` names the kernels whose work a fused
kernel does; it may write the slots that they own, and its time counts where the first of them stands.
``chain: 5 + 0.7*W us`` is what waits one for the other in the kernel, roughly, on one H200: microseconds that no wider
GPU shortens, over the kernel's own scalars. Only the order in which kernels are enqueued goes by it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

# C type of a parameter -> numpy dtype name. The closed list of what a kernel may take.
CTYPES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "unsigned int": "uint32",
    "unsigned": "uint32",
    "long long": "int64",
    "unsigned long long": "uint64",
    "short": "int16",
    "unsigned short": "uint16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "Snapshot": "uint8",
}


class ContractError(ValueError):
    """A kernel file breaks the rules of the contract; the message names file, line and remedy."""


@dataclass(frozen=True)
class Param:
    """One kernel parameter: its name, C element type, and whether it is a pointer and const."""

    name: str
    ctype: str
    pointer: bool
    const: bool

    @property
    def dtype(self) -> str:
        """numpy dtype name of the element (pointers) or of the value (scalars)."""
        return CTYPES[self.ctype]


@dataclass(frozen=True)
class LaunchRule:
    """How many blocks and threads a kernel wants, as expressions over dimension names."""

    mode: str  # "threads" (one thread an item) or "blocks" (one block an item)
    items: str
    block: str
    shared: str = "0"


@dataclass(frozen=True)
class KernelContract:
    """Everything the host knows of a kernel without compiling it."""

    name: str
    file: Path
    line: int
    params: tuple[Param, ...]
    launch: LaunchRule
    updates: frozenset[str]
    summary: str
    fuses: tuple[str, ...] = ()
    chain: tuple[tuple[float, str], ...] = ()  # terms of microseconds, each times the scalar of that name, if any

    @property
    def reads(self) -> tuple[str, ...]:
        """Pointer parameters whose contents the kernel reads."""
        return tuple(p.name for p in self.params if p.pointer and (p.const or p.name in self.updates))

    @property
    def writes(self) -> tuple[str, ...]:
        """Pointer parameters the kernel writes."""
        return tuple(p.name for p in self.params if p.pointer and not p.const)


_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+(?:__\w+__\s*\([^)]*\)\s*)*(\w+)\s*\(([^)]*)\)\s*\{', re.S)
_TERM = re.compile(r"^\s*(\d+(?:\.\d+)?)(?:\*(\w+))?\s*$")
_LAUNCH = re.compile(r"^launch:\s*(threads|blocks)\s+(.+?),\s*block\s+(.+?)(?:,\s*shared\s+(.+?))?\s*$")


def parse_file(path: Path) -> tuple[KernelContract, ...]:
    """Contracts of every kernel in ``path``, in file order. Raises ContractError."""
    text = path.read_text()
    lines = text.splitlines()
    found = []
    for match in _KERNEL.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        where = f"{path}:{line}: kernel {match[1]}"
        comment = _comment_above(lines, line - 1)
        params = tuple(_parse_param(p, where) for p in _split_params(match[2]))
        updates = frozenset(_listed(comment, "updates:"))
        unknown = updates - {p.name for p in params if p.pointer and not p.const}
        if unknown:
            raise ContractError(
                f"{where}: 'updates' names {sorted(unknown)}, which are not non-const pointer parameters"
            )
        found.append(
            KernelContract(
                match[1],
                path,
                line,
                params,
                _launch_rule(comment, where),
                updates,
                _summary(comment, match[1]),
                _listed(comment, "fuses:"),
                _chain(comment, params, where),
            )
        )
    return tuple(found)


CONDITION = "fh_when"  # parameter that conditional_source adds


def conditional_source(text: str) -> str:
    """``text`` of a kernel file, each kernel with one more parameter: a flag; where it is 0 the grid leaves at once.

    All threads of a grid read the same flag, so no barrier is met by some of them only. Lines keep their numbers.
    """

    def change(kernel: re.Match[str]) -> str:
        head, _, tail = kernel[0].rpartition(")")
        comma = ", " if kernel[2].strip() else ""
        return f"{head}{comma}const int* {CONDITION}){tail} if (*{CONDITION} == 0) return;"

    return _KERNEL.sub(change, text)


def _comment_above(lines: list[str], index: int) -> list[str]:
    """The block of // lines that ends directly above line ``index``, without the slashes."""
    start = index
    while start > 0 and lines[start - 1].lstrip().startswith("//"):
        start -= 1
    return [line.lstrip().lstrip("/").strip() for line in lines[start:index]]


def _split_params(text: str) -> list[str]:
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
    return [" ".join(p.split()) for p in text.split(",") if p.strip()]


def _parse_param(text: str, where: str) -> Param:
    words = text.replace("*", " * ").split()
    name = words[-1]
    pointer = "*" in words
    const = "const" in words
    ctype = " ".join(w for w in words[:-1] if w not in ("*", "const", "__restrict__"))
    if ctype not in CTYPES:
        raise ContractError(f"{where}: parameter {name}: type '{ctype}' is not one of {', '.join(CTYPES)}")
    if not pointer and ctype not in ("int", "float", "unsigned int", "unsigned", "long long"):
        raise ContractError(f"{where}: scalar parameter {name}: type '{ctype}' may only be passed by pointer")
    return Param(name, ctype, pointer, const)


def _launch_rule(comment: list[str], where: str) -> LaunchRule:
    for line in comment:
        match = _LAUNCH.match(line)
        if match:
            return LaunchRule(match[1], match[2], match[3], match[4] or "0")
    raise ContractError(f"{where}: no '// launch: threads N, block E' line in the comment above it")


def _listed(comment: list[str], key: str) -> tuple[str, ...]:
    """Names of every line that starts with ``key``, in order."""
    return tuple(
        name.strip() for line in comment if line.startswith(key) for name in line[len(key) :].split(",") if name.strip()
    )


def _chain(comment: list[str], params: tuple[Param, ...], where: str) -> tuple[tuple[float, str], ...]:
    line = next((line for line in comment if line.startswith("chain:")), None)
    if line is None:
        return ()
    text = re.sub(r"\s*us$", "", line.removeprefix("chain:")).strip()
    terms = [_TERM.match(term) for term in text.split("+")]
    scalars = {"", *(p.name for p in params if not p.pointer)}
    if not line.endswith(" us") or any(term is None or (term[2] or "") not in scalars for term in terms):
        raise ContractError(f"{where}: expected 'chain: 5 + 0.7*W us' over the kernel's scalars, got '{line}'")
    return tuple((float(term[1]), term[2] or "") for term in terms if term)


def _summary(comment: list[str], name: str) -> str:
    text = comment[0] if comment else ""
    return re.sub(rf"^{name}\s*:\s*", "", text)
