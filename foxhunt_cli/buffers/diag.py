"""Buffers that exist to be read by people."""

from __future__ import annotations

ROWS = ()
