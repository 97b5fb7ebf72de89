"""Every command's help has examples, each example is a line its command accepts, and the quick ones run as pasted."""

from __future__ import annotations

import re
import shlex

import pytest
import typer

from foxhunt_cli.cli.app import app

ROOT = typer.main.get_command(app)
SLOW = {"train", "oracle", "bench", "sweep", "smoke"}  # parsed here; other tests run them, smaller


def commands(command=ROOT, path: tuple[str, ...] = ()):
    """(words, command) of every command, groups included."""
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


def examples(command) -> list[list[str]]:
    text = re.sub(r"\\\n\s*", " ", command.help or "")  # a backslash continues the line, as in a shell
    lines = [line.strip() for line in text.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("foxhunt ")]


EXAMPLES = [words for _, command in commands() for words in examples(command)]
QUICK = [words for words in EXAMPLES if words[1] not in SLOW]


def resolve(words: list[str]):
    """The command that ``words`` name, and its arguments."""
    command, rest = ROOT, words[1:]
    while hasattr(command, "commands") and rest:
        assert rest[0] in command.commands, " ".join(words)
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


@pytest.mark.parametrize("path", [p for p, _ in commands()], ids=lambda p: " ".join(p) or "foxhunt")
def test_help_has_an_example_of_its_own_command(path):
    command = dict(commands())[path]
    found = examples(command)
    if hasattr(command, "commands"):
        return
    assert found
    assert any(tuple(words[1 : 1 + len(path)]) == path for words in found)


@pytest.mark.parametrize("path", [p for p, _ in commands()], ids=lambda p: " ".join(p) or "foxhunt")
def test_help_goes_to_stdout_and_is_no_wider_than_a_terminal(foxhunt, path):
    status, out, err = foxhunt(*path, "--help")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize("words", EXAMPLES, ids=" ".join)
def test_an_example_is_a_line_its_command_accepts(words):
    command, rest = resolve(words)
    command.make_context("foxhunt", rest)


@pytest.mark.parametrize("words", QUICK, ids=" ".join)
def test_a_quick_example_runs_as_pasted(workplace, foxhunt, words):
    if words[1:3] == ["diag", "kernels"] and "--static" not in words:
        pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
    status, out, err = foxhunt(*words[1:])
    allowed = {0, 1} if "check" in words else {0, 3} if "doctor" in words else {0}
    assert status in allowed, err
    assert out or "blotter" in words
