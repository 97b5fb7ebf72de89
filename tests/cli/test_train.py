"""`foxhunt train` end to end on the CPU: a run directory that is whole, identical twins, a clean Ctrl-C, evaluation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SMALL = ["--device", "cpu", "--steps", "64", "-b", "4", "--rollout", "8", "--set", "synthetic.snapshots=20000"]
TIME_FIELDS = {"time", "perf"}


def foxhunt(*args: str, cwd: Path, **options) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "foxhunt_cli.cli", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, **options)


def lines(run: Path) -> list[dict]:
    records = [json.loads(line) for line in (run / "run.jsonl").read_text().splitlines()]
    return [{k: v for k, v in record.items() if k not in TIME_FIELDS} for record in records]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("train")
    done = foxhunt("train", *SMALL, "--name", "one", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "held-out data" in done.stdout and "diag summarize runs/one\n" in done.stdout
    return folder


def test_run_directory_is_whole(trained: Path) -> None:
    run = trained / "runs" / "one"
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["status"] == "done" and manifest["summary"]["steps"] == 64
    assert manifest["config"]["batch"] == 4 and manifest["data"]["held_out_snapshots"] == 4000
    assert [record["step"] for record in lines(run)] == list(range(8, 65, 8))
    assert (run / "checkpoints" / "step-000000064" / "state.safetensors").stat().st_size > 10_000
    assert json.loads((run / "eval" / "final.json").read_text())["policies"]["hold"]["trades"] == 0


def test_every_line_has_what_the_summary_needs(trained: Path) -> None:
    records = lines(trained / "runs" / "one")
    assert len(records) == 8
    for record in records:
        assert record["nonfinite"] == []
        assert len(record["actions"]["share"]) == 11 and abs(sum(record["actions"]["share"]) - 1.0) < 1e-5


def test_two_runs_with_one_seed_are_identical_and_another_seed_differs(trained: Path) -> None:
    foxhunt("train", *SMALL, "--name", "two", cwd=trained)
    foxhunt("train", *SMALL, "--name", "three", "--cpu-threads", "1", cwd=trained)
    foxhunt("train", *SMALL, "--name", "other", "--seed", "1", cwd=trained)
    runs = trained / "runs"
    assert lines(runs / "one") == lines(runs / "two") == lines(runs / "three")
    assert lines(runs / "one") != lines(runs / "other")
    state = "checkpoints/step-000000064/state.safetensors"
    assert (runs / "one" / state).read_bytes() == (runs / "two" / state).read_bytes()


def test_log_every_keeps_whole_records(trained: Path) -> None:
    foxhunt("train", *SMALL, "--name", "sparse", "--log-every", "3", cwd=trained)
    full, sparse = lines(trained / "runs" / "one"), lines(trained / "runs" / "sparse")
    assert sparse == [record for record in full if record["iteration"] % 3 == 0 or record["iteration"] == 8]


def test_eval_repeats_the_figures_of_the_run(trained: Path) -> None:
    """Long enough for the critic, both its heads, and its target copies to have moved away from where they started."""
    length = ["--steps", "480", "--replay-batch", "32", "--encoder", "mlp", "--set", "isv.p_min=0.05"]
    foxhunt("train", *SMALL, *length, "--set", "isv.target_tau=0.05", "--set", "isv.ensemble_alpha=0.5",
            "--name", "judged", cwd=trained)  # fmt: skip
    done = foxhunt("eval", "runs/judged", "--device", "cpu", "--json", cwd=trained)
    assert done.returncode == 0, done.stderr
    final = json.loads((trained / "runs/judged/eval/final.json").read_text())
    assert final["policies"]["critic"]["trades"] > 0
    assert json.loads(done.stdout)["policies"] == final["policies"]


def test_interrupt_saves_the_state_and_exits_130(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "foxhunt_cli.cli",
        "train",
        *SMALL,
        "--steps",
        "10000000",
        "--name",
        "long",
        "--eval-every",
        "0",
    ]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = tmp_path / "runs" / "long" / "run.jsonl"
    deadline = time.monotonic() + 120
    while not (log.exists() and log.stat().st_size > 0):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "stopped early" in out and "Traceback" not in err
    assert "go on with: foxhunt train --resume runs/long" in out
    manifest = json.loads((tmp_path / "runs/long/manifest.json").read_text())
    assert manifest["status"] == "interrupted"
    step = manifest["summary"]["steps"]
    assert lines(tmp_path / "runs" / "long")[-1]["step"] == step
    assert (tmp_path / "runs/long/checkpoints" / f"step-{step:09d}" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (["--device", "cuda"], 3, ["--device cuda"]),
        (["--data", "missing.dbn.zst"], 6, ["missing.dbn.zst"]),
        (["--data", "empty.dbn"], 5, ["empty.dbn"]),
        (["-b", "0"], 2, ["--batch", "0"]),
        (["--rollout", "2000"], 2, ["rollout"]),
        (["--set", "synthetic.snapshots=100"], 5, ["snapshots"]),
        (["--set", "isv.lr_pi=7"], 2, ["lr_pi", "7"]),
        (["--set", "isv.gama=0.9"], 2, ["gama", "gamma"]),
        (["--set", "isv.kl_pi_ema=1"], 2, ["kl_pi_ema", "measured"]),
        (["--name", "../x"], 2, ["name"]),
        (["--set", "episode_len=100000"], 5, ["episode"]),
        (["--market", "calm"], 2, ["calm"]),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path: Path, args: list[str], status: int, words: list[str]) -> None:
    (tmp_path / "empty.dbn").touch()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    small = [] if "synthetic.snapshots=100" in args else ["--set", "synthetic.snapshots=20000"]
    done = foxhunt("train", *small, *args, cwd=tmp_path, env=environment)
    assert done.returncode == status, done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and "Traceback" not in done.stderr
    for word in words:
        assert word in errors[0]
    assert not (tmp_path / "runs").exists()


def test_a_run_of_that_name_is_never_overwritten(trained: Path) -> None:
    done = foxhunt("train", *SMALL, "--name", "one", cwd=trained)
    assert done.returncode == 6 and "exists" in done.stderr


def test_a_damaged_checkpoint_is_refused(trained: Path) -> None:
    foxhunt("train", *SMALL, "--name", "torn", cwd=trained)
    state = trained / "runs/torn/checkpoints/step-000000064/state.safetensors"
    blob = bytearray(state.read_bytes())
    blob[len(blob) // 2] ^= 1
    state.write_bytes(blob)
    done = foxhunt("eval", "runs/torn", "--device", "cpu", cwd=trained)
    assert done.returncode == 6 and "digest" in done.stderr and "Traceback" not in done.stderr


def killed_midway(folder: Path, name: str, after_step: int, steps: int = 160) -> Path:
    """Start a run and kill it with SIGKILL once its log has passed ``after_step``."""
    command = [sys.executable, "-m", "foxhunt_cli.cli", "train", *SMALL, "--steps", str(steps), "--name", name]
    process = subprocess.Popen(
        [*command, "--checkpoint-every", "16"], cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )
    log = folder / "runs" / name / "run.jsonl"
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        saved = list((folder / "runs" / name / "checkpoints").glob("step-*"))
        if saved and log.exists() and log.read_bytes().count(b"\n") * 8 >= after_step:
            break
        time.sleep(0.001)
    process.kill()
    process.wait()
    return folder / "runs" / name


@pytest.mark.parametrize("after_step", [16, 56, 104])
def test_killed_and_resumed_equals_uninterrupted(trained: Path, after_step: int) -> None:
    whole = trained / "runs" / "whole"
    if not whole.exists():
        done = foxhunt("train", *SMALL, "--steps", "160", "--checkpoint-every", "16", "--name", "whole", cwd=trained)
        assert done.returncode == 0, done.stderr
    run = killed_midway(trained, f"killed{after_step}", after_step)
    done = foxhunt("train", "--resume", f"runs/{run.name}", cwd=trained)
    assert done.returncode == 0, done.stderr
    assert lines(run) == lines(whole)
    state = "checkpoints/step-000000160/state.safetensors"
    assert (run / state).read_bytes() == (whole / state).read_bytes()


def test_resume_with_more_steps_goes_on_and_other_changes_are_refused(trained: Path) -> None:
    foxhunt("train", *SMALL, "--name", "longer", cwd=trained)
    done = foxhunt("train", "--resume", "runs/longer", "--steps", "96", cwd=trained)
    assert done.returncode == 0, done.stderr
    assert [record["step"] for record in lines(trained / "runs/longer")] == list(range(8, 97, 8))
    refused = foxhunt("train", "--resume", "runs/longer", "-b", "8", cwd=trained)
    assert refused.returncode == 2 and "--batch" in refused.stderr and "batch = 4" in refused.stderr


def everything(run: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run)): path.read_bytes() for path in sorted(run.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("steps", ["64", "8", "1"])
def test_resume_to_a_length_the_run_has_reached_is_refused_and_changes_nothing(trained: Path, steps: str) -> None:
    run = trained / "runs" / "one"
    before = everything(run)
    for given in (["--steps", steps], ["--set", f"steps={steps}"]):
        done = foxhunt("train", "--resume", "runs/one", *given, cwd=trained)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
        assert done.returncode == 2 and len(errors) == 1 and "Traceback" not in done.stderr
        for word in ("--steps" if "--steps" in given else "--set steps", "64", f"got {steps}"):
            assert word in errors[0]
    assert everything(run) == before


def test_resume_falls_back_to_the_previous_sound_checkpoint(trained: Path) -> None:
    foxhunt("train", *SMALL, "--checkpoint-every", "16", "--name", "fallback", cwd=trained)
    state = trained / "runs/fallback/checkpoints/step-000000064/state.safetensors"
    state.write_bytes(state.read_bytes()[:1000])
    done = foxhunt("train", "--resume", "runs/fallback", cwd=trained)
    assert done.returncode == 0 and "from step 48" in done.stderr and "digest" in done.stderr
    assert lines(trained / "runs/fallback") == lines(trained / "runs/one")


def test_two_trainers_in_one_run_are_refused(trained: Path) -> None:
    import fcntl

    with (trained / "runs/one/lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = foxhunt("train", "--resume", "runs/one", "--steps", "128", cwd=trained)
    assert done.returncode == 6 and "another process" in done.stderr
