"""Dependencies point one way: down the diagram of docs/architecture.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import foxhunt_cli

ROOT = Path(foxhunt_cli.__file__).parent
ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
# Of a package, those in its own row of the diagram that it must not import.
NOT_BESIDE = {
    "train": {"bench", "oracles"},
    "oracles": {"bench"},
    "diag": {"market"},
    "buffers": {"data"},
    "isv": {"buffers", "data"},
}
ONLY_HERE = {"cupy": {"device/cuda.py", "device/cuda_errors.py", "device/nvrtc.py"}}


def imports(path: Path) -> list[tuple[str, int]]:
    """Modules a file imports, also inside functions; not those for type checking alone."""
    found = []
    tree = ast.parse(path.read_text())
    typing_only = {
        n
        for top in ast.walk(tree)
        if isinstance(top, ast.If) and getattr(top.test, "id", "") == "TYPE_CHECKING"
        for n in ast.walk(top)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, node.lineno))
        elif isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
    return found


def rows() -> list[list[str]]:
    """Packages by row of the diagram in docs/architecture.md, from the top down."""
    diagram = ARCHITECTURE.read_text().partition("## Packages")[2].split("```")[1]
    return [re.split(r"[ ,]+", re.split(r" {3,}", line)[0]) for line in diagram.strip().splitlines()]


LEVEL = {package: level for level, row in enumerate(rows()) for package in row}


def test_the_diagram_has_every_package() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert set(LEVEL) == packages | {"api"}


@pytest.mark.parametrize("package", LEVEL)
def test_imports_point_down(package: str) -> None:
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")) or [ROOT / f"{package}.py"]:
        for module, line in imports(path):
            root, _, rest = module.partition(".")
            used = rest.split(".")[0]
            if root == "foxhunt_cli" and used and (LEVEL[used] < LEVEL[package] or used in NOT_BESIDE.get(package, ())):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {module}")
    assert not wrong


@pytest.mark.parametrize("library", sorted(ONLY_HERE))
def test_device_libraries_stay_in_their_module(library: str) -> None:
    users = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for module, _ in imports(path)
        if module.split(".")[0].startswith(library)
    }
    assert users <= ONLY_HERE[library]
