"""Reads the text of kernel files: what they include, and which functions and macros stand in them.

Goes by words and brackets, not by grammar: enough for files that follow the rules of ``cuda_src``, and the same for
everyone who asks (cache keys, the CPU device's units, the slots a kernel touches). It compiles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from foxhunt_cli.device.base import CompileError

_COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)
_VISIBLE = re.compile(r"[^\n]")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)((?:.*\\\n)*.*)$", re.M)
_FUNCTION_HEAD = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_FUNCTION_BODY = re.compile(r"\s*(?:const|noexcept|\s)*\{")
_CLOSING = {"(": ")", "{": "}"}


@lru_cache(maxsize=1024)
def resolved(path: Path) -> Path:
    """``path.resolve()``, asked once a process: it looks at every folder on the way."""
    return path.resolve()


def include_closure(file: Path, folders: Sequence[Path]) -> dict[Path, str]:
    """``file`` and every header it reaches by ``#include "..."``, with their text, in order of discovery.

    A name is looked for beside its includer, then in ``folders``. Raises CompileError naming the line of an include
    that is nowhere.
    """
    found: dict[Path, str] = {}
    waiting = [resolved(file)]
    while waiting:
        own = waiting.pop(0)
        if own in found:
            continue
        text = found[own] = own.read_text()
        for name, line in _includes(text):
            places = [folder / name for folder in (own.parent, *folders)]
            header = next((place for place in places if place.is_file()), None)
            if header is None:
                looked = ", ".join(dict.fromkeys(str(place.parent) for place in places))
                raise CompileError(f'{own}:{line}: no header "{name}"; looked in {looked}')
            waiting.append(resolved(header))
    return found


# What is read from a text depends on the text alone, and headers come again with every file that includes them.
@lru_cache(maxsize=512)
def _includes(text: str) -> tuple[tuple[str, int], ...]:
    """(name, line) of each include by quotes."""
    return tuple((match[1], text.count("\n", 0, match.start(1)) + 1) for match in _INCLUDE.finditer(text))


@lru_cache(maxsize=512)
def blank(text: str) -> str:
    """``text`` with comments and string contents as spaces, every other character where it was."""
    return _COMMENT_OR_STRING.sub(lambda m: _VISIBLE.sub(" ", m[0]), text)


def matching(code: str, start: int) -> int:
    """Index of the bracket that closes the one at ``start``; the end of the text when none does."""
    opening = code[start]
    depth = 0
    for match in re.compile(rf"[{re.escape(opening + _CLOSING[opening])}]").finditer(code, start):
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.start()
    return len(code)


@lru_cache(maxsize=512)
def definitions(text: str) -> tuple[list[tuple[str, str]], str]:
    """(name, body) of every macro and function of ``text``, and what remains of its code without them."""
    code = blank(text)
    found = [(m[1], m[2]) for m in _DEFINE.finditer(code)]
    code = _DEFINE.sub("", code)
    rest = []
    position = 0
    while match := _FUNCTION_HEAD.search(code, position):
        close = matching(code, match.end() - 1)
        after = _FUNCTION_BODY.match(code, close + 1)
        if not after:
            rest.append(code[position : match.end()])
            position = match.end()
            continue
        end = matching(code, after.end() - 1)
        found.append((match[1], code[match.end() : end]))
        rest.append(code[position : match.start()])
        position = end + 1
    return found, "".join([*rest, code[position:]])
