"""What the documents say can be typed: command lines are accepted by their commands, links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from test_help import resolve

from foxhunt_cli.kernels.registry import cuda_root

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "examples/README.md",
]
BLOCK = re.compile(r"```\w*\n(.*?)```", re.S)
INLINE = re.compile(r"`(foxhunt [^`]+)`")
LINK = re.compile(r"\]\(([\w./:-]+)\)")


def command_lines() -> list[str]:
    found = []
    for path in DOCUMENTS:
        text = path.read_text()
        for block in BLOCK.findall(text):
            found += [line.removeprefix("$ ") for line in block.splitlines() if re.match(r"(\$ )?foxhunt ", line)]
        found += [
            line for line in INLINE.findall(BLOCK.sub("", text)) if line.split()[1] != "oracle" or " SUITE" not in line
        ]
    return sorted(set(found))


@pytest.mark.parametrize("line", command_lines())
def test_a_command_line_of_the_documents_is_accepted(foxhunt, line):
    words = shlex.split(line.split("  #")[0])
    if words[1].startswith("-"):
        assert words[1] in foxhunt("--help")[1]
        return
    command, rest = resolve(words)
    if not hasattr(command, "commands") and rest:
        command.make_context("foxhunt", rest)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for link in LINK.findall(path.read_text()):
        kernels = link.startswith("cuda_src/") and (cuda_root() / link.removeprefix("cuda_src/")).exists()
        assert kernels or link.startswith("http") or (path.parent / link).exists(), link


def test_the_readme_shows_figures_of_commands_that_exist():
    text = (ROOT / "README.md").read_text()
    assert "foxhunt train --steps 6000 --encoder mlp" in text and "held-out data, greedy policy" in text
