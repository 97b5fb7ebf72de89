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

_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
_VISIBLE = re.compile(r"[^\n]")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:.*\\\n)*.*)$", re.M)
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?([\w:\s]+?)\s+(\w+)\s*\[\s*\]\s*;"
)
_KERNEL_HEAD = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(")
_FUNCTION_HEAD = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
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
        found = include_closure(self.file, self.root)
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
def _includes(text: str) -> tuple[str, ...]:
    return tuple(_INCLUDE.findall(text))


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


@lru_cache(maxsize=1024)
def resolved(path: Path) -> Path:
    """``path.resolve()``, asked once a process: it looks at every folder on the way."""
    return path.resolve()


def include_closure(file: Path, root: Path) -> dict[Path, str]:
    """Text of every file that ``file`` includes by quotes, directly or not. Names are relative to the includer or
    to ``root``; what is found in neither place is left to the compiler to report."""
    found: dict[Path, str] = {}
    waiting = [(file, file.read_text())]
    while waiting:
        origin, text = waiting.pop()
        for name in _includes(text):
            path = next((resolved(p) for p in (origin.parent / name, root / name) if p.is_file()), None)
            if path and path not in found:
                found[path] = path.read_text()
                waiting.append((path, found[path]))
    return found


def _dynamic_pointer(match: re.Match[str]) -> str:
    """A pointer declaration of as many lines as the array declaration it replaces."""
    return f"{match[1]}* const {match[2]} = ({match[1]}*)fh_dynamic_shared;" + "\n" * match[0].count("\n")


@lru_cache(maxsize=512)  # a header is looked at with every file that includes it
def blank(text: str) -> str:
    """``text`` with comments and string contents as spaces, every other character where it was."""
    return _COMMENT_OR_STRING.sub(lambda m: _VISIBLE.sub(" ", m[0]), text)


def matching(code: str, start: int) -> int:
    """Index of the bracket that closes the one at ``start``; the end of the text when none does."""
    opening = code[start]
    closing = {"(": ")", "{": "}"}[opening]
    depth = 0
    for match in re.compile(rf"[{re.escape(opening + closing)}]").finditer(code, start):
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.start()
    return len(code)


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


@lru_cache(maxsize=256)  # headers are seen again with every file that includes them
def definitions(text: str) -> tuple[list[tuple[str, str]], str]:
    """(name, body) of every macro and function of ``text``, and what remains of its code without them."""
    code = blank(text)
    found = [(m[1], m[2]) for m in _DEFINE.finditer(code)]
    code = _DEFINE.sub("", code)
    rest = []
    position = 0
    while match := _FUNCTION_HEAD.search(code, position):
        close = matching(code, match.end() - 1)
        after = re.compile(r"\s*(?:const|noexcept|\s)*\{").match(code, close + 1)
        if not after:
            rest.append(code[position : match.end()])
            position = match.end()
            continue
        end = matching(code, after.end() - 1)
        found.append((match[1], code[match.end() : end]))
        rest.append(code[position : match.start()])
        position = end + 1
    return found, "".join([*rest, code[position:]])
