"""Exceptions to exit statuses: the one place that decides how a failed command ends.

Every failure ends in one ``error: ...`` line on stderr; a traceback appears only with ``--debug``. Classes are
named, not imported: a command that fails on its options must not pay for loading numpy.
"""

from __future__ import annotations

import os
import sys
import traceback

import typer

from foxhunt_cli.cli.streams import say

DONE = 0
CHECK_FAILED = 1
USAGE = 2
NO_DEVICE = 3
NUMERIC_FAULT = 4
BAD_DATA = 5
FILES = 6
INTERRUPTED = 130
TERMINATED = 143

# Qualified name of an exception class -> exit status. The nearest class in an exception's ancestry decides.
STATUS = {
    "foxhunt_cli.config.load.ConfigError": USAGE,
    "foxhunt_cli.isv.seeds.SeedError": USAGE,
    "foxhunt_cli.diag.extras.MissingExtra": USAGE,
    "foxhunt_cli.device.base.UnknownDevice": USAGE,
    "foxhunt_cli.device.base.DeviceError": NO_DEVICE,
    "foxhunt_cli.train.loop.NumericFault": NUMERIC_FAULT,
    "foxhunt_cli.data.errors.DataFileError": FILES,
    "foxhunt_cli.data.errors.DataError": BAD_DATA,
    "foxhunt_cli.diag.reader.RunLogError": BAD_DATA,
    "foxhunt_cli.diag.writer.FileError": FILES,
    "builtins.MemoryError": NO_DEVICE,
    "builtins.OSError": FILES,
    "builtins.KeyboardInterrupt": INTERRUPTED,
}


class Interrupted(Exception):
    """Ctrl-C within a command."""


class ReaderLeft(Exception):
    """Whoever read stdout (``| head``) has left."""


def exit_status(error: BaseException) -> int | None:
    """Exit status that ``error`` stands for; None for a class nobody listed, which is a defect of ours."""
    for cls in type(error).__mro__:
        status = STATUS.get(f"{cls.__module__}.{cls.__qualname__}")
        if status is not None:
            return status
    return None


def device_is_lost(error: BaseException) -> bool:
    """Whether ``error`` ended this process's use of the GPU."""
    return any(f"{c.__module__}.{c.__qualname__}" == "foxhunt_cli.device.base.KernelFault" for c in type(error).__mro__)


def report(error: BaseException, debug: bool = False) -> int:
    """Says on stderr what went wrong, in one line, and returns the exit status."""
    if isinstance(error, BrokenPipeError | ReaderLeft):
        return _reader_left()
    if isinstance(error, typer.Abort | KeyboardInterrupt | Interrupted):
        return _say("interrupted", INTERRUPTED, error, debug)
    if hasattr(error, "format_message"):  # what typer raises on a wrong option or command
        return _usage(error)
    status = exit_status(error)
    if status is None:
        hint = "" if debug else "; run again with --debug for the traceback, and please report it"
        return _say(f"internal error: {type(error).__name__}: {error}{hint}", CHECK_FAILED, error, debug)
    return _say(_words(error), status, error, debug)


def _words(error: BaseException) -> str:
    """The message of an expected failure; the few built-in classes get the words they lack."""
    if isinstance(error, MemoryError):
        # numpy adds shape and data type, which are ours and no one's business
        what = str(error).partition(" for an array")[0] or "the host has no more"
        return f"out of memory: {what}; lower --batch or --rollout, or use fewer snapshots (--max-snapshots)"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _say(text: str, status: int, error: BaseException, debug: bool) -> int:
    if debug:
        say("".join(traceback.format_exception(error)).rstrip())
    say(f"error: {text}")
    return status


def _usage(error: BaseException) -> int:
    """A wrong command line, in typer's words; a group called without a command shows its help, as text."""
    message = error.format_message()
    if "NoArgsIsHelp" in type(error).__name__:
        say(message)
        return USAGE
    context = getattr(error, "ctx", None)
    help_hint = f" (see {context.command_path} --help)" if context is not None else ""
    say(f"error: {message.rstrip('.')}{help_hint}")
    return USAGE


def _reader_left() -> int:
    """The reader of our stdout (``| head``) has gone: nothing is wrong, and nothing more can be said there."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return DONE
