"""Buffers that exist to be read by people. RING = its slots."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer

ROWS = (
    Buffer("diag_ring", "RING, 640", "float32", "persistent", "mixed", "the last copies of the ISV"),
    Buffer("diag_head", "1", "uint32", "persistent", "records", "copies made so far"),
)
