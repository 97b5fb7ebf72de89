"""Exceptions to exit statuses, and the words they end in."""

from __future__ import annotations

import errno
import importlib

import pytest
import typer

from foxhunt_cli.cli.errors import STATUS, exit_status, report
from foxhunt_cli.config.load import ConfigError
from foxhunt_cli.data.errors import DataError, DataFileError
from foxhunt_cli.device.base import CompileError, DeviceError, KernelFault
from foxhunt_cli.diag.reader import RunLogError
from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.isv.seeds import SeedError


@pytest.mark.parametrize("name", STATUS)
def test_every_listed_class_exists(name):
    module, _, cls = name.rpartition(".")
    assert issubclass(getattr(importlib.import_module(module), cls), BaseException)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ConfigError("x"), 2),
        (SeedError("x"), 2),
        (DeviceError("x"), 3),
        (CompileError("x"), 3),
        (KernelFault("x"), 3),
        (MemoryError(), 3),
        (DataError("x"), 5),
        (RunLogError("x"), 5),
        (DataFileError("x"), 6),
        (FileError("x"), 6),
        (PermissionError(errno.EACCES, "Permission denied", "runs"), 6),
        (KeyboardInterrupt(), 130),
        (ZeroDivisionError(), None),
    ],
)
def test_statuses(error, status):
    assert exit_status(error) == status


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConfigError("batch should be ..."), "error: batch should be ..."),
        (PermissionError(errno.EACCES, "Permission denied", "runs"), "error: runs: Permission denied"),
        (
            MemoryError(),
            "error: out of memory: the host has no more; lower --batch or --rollout, or use fewer snapshots "
            "(--max-snapshots)",
        ),
        (
            MemoryError("Unable to allocate 9. GiB for an array with shape (9,) and data type float32"),
            "error: out of memory: Unable to allocate 9. GiB; lower --batch or --rollout, or use fewer snapshots "
            "(--max-snapshots)",
        ),
        (KeyboardInterrupt(), "error: interrupted"),
        (typer.Abort(), "error: interrupted"),
    ],
)
def test_words(capsys, error, line):
    report(error)
    assert capsys.readouterr().err == line + "\n"


def test_a_defect_asks_for_a_report(capsys):
    assert report(ZeroDivisionError("division by zero")) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: internal error: ZeroDivisionError: division by zero; run again with --debug")
    assert err.count("\n") == 1
