"""Dependencies point one way: cli -> train, bench -> pipeline -> kernels, device -> buffers, isv, config."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import foxhunt_cli

ROOT = Path(foxhunt_cli.__file__).parent
# What a package must not import: whatever stands above it.
FORBIDDEN = {
    "isv": {"cli", "train", "bench", "pipeline", "device", "buffers", "nets", "market", "oracles", "diag", "data"},
    "buffers": {"cli", "train", "bench", "pipeline", "nets", "market", "oracles", "diag", "data", "kernels"},
    "kernels": {"cli", "train", "bench", "pipeline", "nets", "market", "oracles", "diag", "data"},
    "device": {"cli", "train", "bench", "pipeline", "nets", "market", "oracles", "diag", "data", "isv"},
    "data": {"cli", "train", "bench", "pipeline", "nets", "market", "oracles", "diag", "kernels", "device"},
    "config": {"cli", "train", "bench", "pipeline", "nets", "market", "oracles", "diag", "kernels", "device"},
    "pipeline": {"cli", "train", "bench", "oracles", "diag", "data"},
    "nets": {"cli", "train", "bench", "oracles", "diag", "data", "market"},
    "market": {"cli", "bench", "oracles"},
    "diag": {"cli", "train", "bench", "pipeline", "oracles", "device", "market", "data"},
    "oracles": {"cli", "bench"},
    "train": {"cli", "bench", "oracles"},
    "bench": {"cli"},
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


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_imports_point_down(package: str) -> None:
    wrong = []
    for path in sorted((ROOT / package).rglob("*.py")):
        for module, line in imports(path):
            parts = module.split(".")
            if parts[0] == "foxhunt_cli" and len(parts) > 1 and parts[1] in FORBIDDEN[package]:
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
