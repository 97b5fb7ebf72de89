"""Compiled kernels in a cache end in a digest of themselves.

A library that a full disk or a lost machine has cut short would end the process at its first page fault, without a
word. The digest is a line of text behind the file: loaders of ELF do not look there, and in PTX it is a comment.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

_LEAD = b"\n// foxhunt seal "
_HEX = 32
LENGTH = len(_LEAD) + _HEX + 1
"""Bytes that a seal adds."""


def sealed(content: bytes) -> bytes:
    """``content`` and its digest."""
    return content + _LEAD + hashlib.blake2b(content, digest_size=_HEX // 2).hexdigest().encode() + b"\n"


def is_whole(path: Path) -> bool:
    """Whether the file is there and is what was sealed."""
    try:
        content = path.read_bytes()
    except OSError:
        return False
    return len(content) > LENGTH and sealed(content[:-LENGTH]) == content
