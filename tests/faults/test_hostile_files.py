"""Files from elsewhere: torn logs, manifests that point outside, and nothing anywhere that could run code."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from runs import CLI, lines, one_error, train

import foxhunt_cli
from foxhunt_cli.train import run_dir

PACKAGE = Path(foxhunt_cli.__file__).parent
# Reading any of these can run code that a file brings along.
UNSAFE_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "yaml", "jsonpickle"}
UNSAFE_CALLS = {"eval", "exec", "read_pickle", "to_pickle", "tostring_pickle"}

# Dimension arithmetic: the expressions stand in the package's own tables and kernels, none comes from a file of a user.
OWN_EXPRESSIONS = {"config/dims.py": ["eval()"]}


def unsafe(tree: ast.AST) -> list[str]:
    """Places in a module that could run what a file holds."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.split(".")[0] in UNSAFE_MODULES]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in UNSAFE_MODULES:
            found.append(str(node.module))
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            bare = isinstance(node.func, ast.Name)
            if name in UNSAFE_CALLS and (bare or name not in ("eval", "exec")):
                found.append(f"{name}()")
            found += [f"{k.arg}=" for k in node.keywords if k.arg == "allow_pickle" and getattr(k.value, "value", 1)]
            if name == "load" and getattr(getattr(node.func, "value", None), "id", "") == "torch":
                found.append("torch.load()")
    return found


def test_no_module_can_unpickle_or_evaluate_what_a_file_holds() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        known = OWN_EXPRESSIONS.get(path.relative_to(PACKAGE).as_posix(), [])
        assert unsafe(ast.parse(path.read_text())) == known, path


@pytest.mark.parametrize(
    "code",
    ["import pickle", "from joblib import load", "np.load(f, allow_pickle=True)", "eval(text)", "torch.load(f)",
     "pandas.read_pickle(f)"],
)  # fmt: skip
def test_the_search_for_unsafe_code_finds_it(code: str) -> None:
    assert unsafe(ast.parse(code))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with the run ``runs/one`` of 64 steps."""
    folder = tmp_path_factory.mktemp("hostile")
    done = train("--steps", "64", "--checkpoint-every", "32", "--eval-every", "0", name="one", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of that run of this test's own."""
    shutil.copytree(made / "runs", tmp_path / "runs")
    return tmp_path / "runs" / "one"


def change(run: Path, **config: object) -> None:
    """Other values in the config of the manifest, whose digest is made anew."""
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["config"] |= config
    manifest["summary"]["checkpoint"] = "../../outside/step-000000064"
    run_dir.write_manifest(run, manifest)


def files(folder: Path) -> dict[str, float]:
    """Every file below ``folder`` and when it was changed."""
    return {str(p): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}


def test_a_manifest_cannot_make_a_resumed_run_write_elsewhere(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(run / "checkpoints", outside)
    before = files(outside)
    change(run, runs_dir=str(outside), name="other")
    done = train("--resume", "runs/one", "--steps", "96", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert files(outside) == before and lines(run)[-1]["step"] == 96
    assert (run / "checkpoints/step-000000096").exists()


@pytest.mark.parametrize("name", ["../../x", "/tmp/x", "a/b", "", "..", "x\0y"])
def test_a_manifest_with_a_name_that_is_a_path_is_refused(run: Path, tmp_path: Path, name: str) -> None:
    change(run, name=name)
    one_error(train("--resume", "runs/one", "--steps", "96", cwd=tmp_path), 6, "manifest.json", "name")


def test_a_manifest_changed_by_hand_is_refused(run: Path, tmp_path: Path) -> None:
    path = run / "manifest.json"
    path.write_text(path.read_text().replace('"batch": 4', '"batch": 5'))
    one_error(train("--resume", "runs/one", "--steps", "96", cwd=tmp_path), 6, "manifest.json", "digest")


def test_pruning_does_not_follow_links_out_of_the_run(run: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    shutil.copytree(run / "checkpoints" / "step-000000032", outside / "step-000000032")
    for name in ("step-000000001", ".step-000000001.part"):
        os.symlink(outside, run / "checkpoints" / name)
    before = files(outside)
    assert train("--resume", "runs/one", "--steps", "160", cwd=tmp_path).returncode == 0
    assert files(outside) == before


@pytest.mark.parametrize(
    "command",
    ["summarize runs/one", "check runs/one", "compare runs/one runs/one", "plot runs/one -o p.png",
     "export runs/one -o o.csv", "export runs/one loss. -o o.csv"],
)  # fmt: skip
def test_every_reader_takes_a_torn_log_and_says_so(run: Path, tmp_path: Path, command: str) -> None:
    log = run / "run.jsonl"
    log.write_bytes(log.read_bytes()[:-100])
    done = subprocess.run([*CLI, "diag", *command.split()], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    if "matplotlib" in done.stderr:
        pytest.skip("matplotlib is not installed")
    assert done.returncode in (0, 1) and "error" not in done.stderr, done.stderr
    assert "torn" in done.stdout + done.stderr


def test_a_torn_log_is_mended_by_resuming(run: Path, made: Path, tmp_path: Path) -> None:
    for step in ("000000064",):
        shutil.rmtree(run / "checkpoints" / f"step-{step}")
    log = run / "run.jsonl"
    log.write_bytes(log.read_bytes()[:-100])
    assert train("--resume", "runs/one", cwd=tmp_path).returncode == 0
    assert lines(run) == lines(made / "runs/one")
