"""Buffers that exist to be read by people. RING = its slots."""

from __future__ import annotations

from foxhunt_cli.buffers.row import Buffer
from foxhunt_cli.isv.table import ISV_SIZE

ROWS = (
    Buffer("diag_ring", f"RING, {ISV_SIZE}", "float32", "persistent", "mixed", "the last copies of the ISV"),
    Buffer("diag_head", "1", "uint32", "persistent", "records", "copies made so far"),
)
