"""The generated references are up to date, and no field of a record is missing from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from foxhunt_cli.diag import schema
from foxhunt_cli.diag.check import check
from foxhunt_cli.diag.fields import DERIVED, record
from foxhunt_cli.diag.reader import flatten
from foxhunt_cli.diag.reference import _CRITERIA, render_diagnostics, render_slots
from foxhunt_cli.diag.summary import Summary
from foxhunt_cli.isv.table import ISV_SIZE, number, slots

DOCS = Path(__file__).resolve().parents[3] / "docs"
REMEDY = "run: python -m foxhunt_cli.diag.reference"


def test_references_are_up_to_date():
    assert (DOCS / "slots.md").read_text() == render_slots(), REMEDY
    assert (DOCS / "diagnostics.md").read_text() == render_diagnostics(), REMEDY
    assert schema.shipped() == schema.schema(), REMEDY


def test_every_field_of_a_record_is_documented():
    isv = np.zeros(ISV_SIZE, np.float32)
    isv[number("TRADES_CLOSED")] = 1.0
    text = render_diagnostics()
    names = [name for name, _ in flatten(record(isv, slots(), dict.fromkeys(DERIVED, 0.0)))]
    assert [name for name in names if f"`{name}`" not in text and not name.startswith("actions.share")] == []


def test_every_criterion_is_explained():
    assert [criterion.topic for criterion in check(Summary(DOCS, None))] == list(_CRITERIA)
