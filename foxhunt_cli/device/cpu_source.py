"""From a ``.cu`` file to the text of a translation unit for the host.

Owns what is read from and added to a kernel file. It compiles nothing.

A unit is the shim, the kernel file under ``#line`` (so that messages name its own lines) and one launcher a kernel.
Only two things of the file are rewritten, each within its line: ``extern __shared__`` becomes a pointer, and kernels
without barriers get the built-in indices as parameters, which lets the compiler vectorise the loop over threads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

from foxhunt_cli.device.base import CompileError, DeviceError
from foxhunt_cli.kernels.contract import KernelContract, parse_file
from foxhunt_cli.kernels.text import blank, definitions, include_closure, matching, resolved

_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?([\w:\s]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_KERNEL_HEAD = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")
_WORD = re.compile(r"[A-Za-z_]\w*")
# Words that make a thread stop and wait, and memory that threads share.
_MEETS = re.compile(r"__sync\w*|\w+_sync|__shared__|cooperative_groups")
_INDEX_WORDS = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim"})


@dataclass(frozen=True)
class KernelUnit:
    """One kernel file as a translation unit. ``root`` is the ``cuda_src`` folder that includes are relative to."""

    file: Path
    root: Path
    contracts: tuple[KernelContract, ...] = field(compare=False)

    @classmethod
    def of(cls, file: Path) -> KernelUnit:
        """The unit of ``file``, with every kernel in it. Raises DeviceError, ContractError."""
        file = resolved(file)
        root = next((p for p in file.parents if p.name in ("cuda_src", "_cuda_src")), file.parent)  # wheel: _cuda_src
        if "cuda_only" in file.relative_to(root).parts:
            raise DeviceError(f"{file}: files in cuda_only are not built for the CPU; the caller must leave them out")
        return cls(file, root, _contracts(file, file.read_text()))

    @cached_property
    def body(self) -> str:
        """Text of the kernel file."""
        return self.file.read_text()

    @cached_property
    def headers(self) -> dict[Path, str]:
        """Every file this one includes, directly or not, by path. What the cache key must cover."""
        found = include_closure(self.file, (self.root,))
        del found[self.file]
        for path, text in found.items():
            if _DYNAMIC_SHARED.search(blank(text)):
                raise CompileError(
                    f"{path}: a header may not declare extern __shared__; declare it in the kernel and pass a pointer"
                )
        return found

    @cached_property
    def plain_kernels(self) -> frozenset[str]:
        """Kernels whose threads never meet: they run as a loop, the others on fibers."""
        return plain_kernels((self.body, *self.headers.values()), tuple(c.name for c in self.contracts))

    def text(self) -> str:
        """The whole translation unit."""
        rewritten = _with_index_parameters(_DYNAMIC_SHARED.sub(_dynamic_pointer, self.body), self.plain_kernels)
        launchers = "".join(self._launcher(c) for c in self.contracts)
        name = str(self.file).replace("\\", "\\\\").replace('"', '\\"')
        below = f'#line 1 "launchers of {self.file.name}"\n{launchers}'
        return f'#include "cuda_on_cpu.h"\n#line 1 "{name}"\n{rewritten}\n{below}'

    def _launcher(self, contract: KernelContract) -> str:
        fields = "".join(
            f" alignas(8) {'const ' if p.const else ''}{p.ctype}{'*' if p.pointer else ''} {p.name};"
            for p in contract.params
        )
        struct = f"struct fh_args_{contract.name} {{{fields} }};\n"
        unpack = f"const fh_args_{contract.name} args = *(const fh_args_{contract.name}*)raw;"
        values = [f"args.{p.name}" for p in contract.params]
        if contract.name not in self.plain_kernels:
            call = f"{contract.name}({', '.join(values)});"
            return f"{struct}FH_LAUNCHER void fh_thread_{contract.name}(const void* raw) {{ {unpack} {call} }}\n"
        call = f"{contract.name}({', '.join([*values, 'FH_INDEX_ARGUMENTS'])});"
        return (
            f"{struct}FH_LAUNCHER void fh_plain_{contract.name}(const void* raw, int first_block, int last_block, "
            f"int first_thread, int last_thread, int block_size, int grid_size) "
            f"{{ {unpack} FH_FOR_EACH_THREAD {call} }}\n"
        )


# What is read from a file depends on its text alone, and every device of a process asks for it anew.
@lru_cache(maxsize=512)
def _contracts(file: Path, text: str) -> tuple[KernelContract, ...]:
    return parse_file(file)


@lru_cache(maxsize=512)
def _with_index_parameters(text: str, plain: frozenset[str]) -> str:
    """``text`` with the built-in indices as parameters of the kernels in ``plain``."""
    code = blank(text)
    inserts = []
    for head in _KERNEL_HEAD.finditer(code):
        if head[1] in plain:
            close = matching(code, head.end() - 1)
            empty = not code[head.end() : close].strip()
            inserts.append((close, "FH_INDEX_PARAMETERS" if empty else ", FH_INDEX_PARAMETERS"))
    for position, words in reversed(inserts):
        text = text[:position] + words + text[position:]
    return text


def _dynamic_pointer(match: re.Match[str]) -> str:
    """A pointer declaration of as many lines as the array declaration it replaces."""
    return f"{match[1]}* const {match[2]} = ({match[1]}*)fh_dynamic_shared;" + "\n" * match[0].count("\n")


@lru_cache(maxsize=512)
def plain_kernels(texts: tuple[str, ...], kernels: tuple[str, ...]) -> frozenset[str]:
    """Those of ``kernels`` that neither meet other threads nor call, by name, anything that might.

    Goes by words alone, so it errs to the side of fibers: same-named functions count as one, and a word of
    synchronisation outside any function or macro makes every kernel suspect. Helpers that read the built-in indices
    count too: the parameters of the kernel are out of their sight.
    """
    bodies: dict[str, list[str]] = {}
    suspect = False
    for text in texts:
        found, rest = definitions(text)
        suspect = suspect or bool(_MEETS.search(rest))
        for name, body in found:
            bodies.setdefault(name, []).append(body)
    if suspect:
        return frozenset()
    return frozenset(name for name in kernels if _is_plain(name, bodies))


def _is_plain(kernel: str, bodies: dict[str, list[str]]) -> bool:
    seen = {kernel}
    waiting = [kernel]
    while waiting:
        name = waiting.pop()
        for body in bodies.get(name, []):
            words = set(_WORD.findall(body))
            if any(_MEETS.fullmatch(word) for word in words) or (name != kernel and words & _INDEX_WORDS):
                return False
            called = (words & bodies.keys()) - seen
            seen |= called
            waiting.extend(called)
    return True
