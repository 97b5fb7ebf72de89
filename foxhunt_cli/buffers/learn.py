"""Buffers of the networks and of the on-policy update."""

from __future__ import annotations

ROWS = ()
