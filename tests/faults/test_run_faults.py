"""A run among signals, full disks, read-only folders, a wrong clock and a second trainer: one message, nothing lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from runs import CLI, SMALL, environment, lines, one_error, start, state, train, wait_for_lines

from foxhunt_cli.cli.console import Terminal
from foxhunt_cli.config.load import load_config
from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.diag.reader import RunLog
from foxhunt_cli.train import checkpoint, resume, run_dir
from foxhunt_cli.train.loop import train as train_run
from foxhunt_cli.train.signals import StopRequest

ROOT = os.geteuid() == 0
LONG = ("--steps", "10000000", "--eval-every", "0", "--checkpoint-every", "64")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with one finished run of 64 steps, ``runs/one``."""
    folder = tmp_path_factory.mktemp("faults")
    done = train("--steps", "64", "--checkpoint-every", "32", name="one", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A folder of this test's own with that run."""
    shutil.copytree(made / "runs", tmp_path / "runs")
    return tmp_path


# Signals -----------------------------------------------------------------------------------------------------------


def test_sigterm_saves_the_state_exits_143_and_the_run_goes_on(tmp_path: Path) -> None:
    run = tmp_path / "runs/long"
    process = start(*LONG, name="long", cwd=tmp_path)
    wait_for_lines(process, run)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "Traceback" not in err, err
    stopped = json.loads((run / "manifest.json").read_text())
    assert stopped["status"] == "interrupted" and lines(run)[-1]["step"] == stopped["summary"]["steps"]
    more = stopped["summary"]["steps"] + 16
    assert train("--resume", "runs/long", "--steps", str(more), cwd=tmp_path).returncode == 0
    assert [r["step"] for r in lines(run)] == list(range(8, more + 1, 8))


def test_a_second_sigint_leaves_at_once_and_a_sound_checkpoint_stays(tmp_path: Path) -> None:
    run = tmp_path / "runs/long"
    process = start(*LONG, name="long", cwd=tmp_path)
    wait_for_lines(process, run, 16)
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.001)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err, err
    folder, _, refused = resume.newest_sound(run)
    assert not refused and int(folder.name[5:]) > 0
    list(RunLog(run))


@pytest.mark.parametrize("after_s", [0.3, 1.0, 1.7])
def test_an_interrupt_while_it_starts_is_no_traceback(tmp_path: Path, after_s: float) -> None:
    process = start(*LONG, name="early", cwd=tmp_path)
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err, err


def test_an_interrupt_while_the_commands_are_loaded_is_one_line(tmp_path: Path) -> None:
    """A module that everything imports interrupts the program in the middle of its loading."""
    (tmp_path / "typer.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(10)\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*CLI, "train"], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment(PYTHONPATH=path)
    )
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == ["typer.py"]


def test_an_interrupt_while_files_are_made_leaves_a_whole_run(tmp_path: Path, monkeypatch) -> None:
    """From the first file on a signal waits: the run stops before its first iteration, with a checkpoint."""
    made = run_dir.create

    def create(config: RunConfig) -> Path:
        path = made(config)
        signal.raise_signal(signal.SIGINT)
        return path

    monkeypatch.setattr(run_dir, "create", create)
    config = load_config(sets=["device=cpu", "encoder=mlp", "batch=4", "synthetic.snapshots=20000", "name=early",
                               f'runs_dir="{tmp_path}"'])  # fmt: skip
    summary = train_run(config, Terminal(quiet=True))
    assert summary.exit_status == 130 and summary.figures["steps"] == 0
    assert run_dir.read_manifest(summary.run)["status"] == "interrupted"
    assert checkpoint.load(checkpoint.latest(summary.run))["params"].size > 0


def test_a_signal_a_library_swallowed_leaves_before_there_are_files() -> None:
    with StopRequest() as stop:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            stop.begin()
    with StopRequest() as stop:
        with contextlib.suppress(SystemExit):
            signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit) as left:
            stop.begin()
    assert left.value.code == 143


def test_a_signal_while_it_starts_is_remembered_even_if_its_exception_is_swallowed() -> None:
    with StopRequest() as stop:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert stop.requested and stop.exit_status == 130
    with StopRequest() as stop, contextlib.suppress(SystemExit):
        signal.raise_signal(signal.SIGTERM)
    assert stop.requested and stop.exit_status == 143


def test_once_begun_a_signal_is_a_request_and_a_second_interrupt_leaves() -> None:
    with StopRequest() as stop:
        stop.begin()
        signal.raise_signal(signal.SIGTERM)
        assert stop.requested and stop.exit_status == 143
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_in_another_thread_signals_stay_with_the_program_that_called() -> None:
    def enter() -> None:
        with StopRequest() as stop:
            entered.append(stop.requested)

    entered: list[bool] = []
    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert entered == [False]


# Disks -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path):
    """A mounted file system of a few megabytes; needs the right to mount."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=26m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"cannot mount a small file system here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_fills_up_is_one_message_and_the_last_checkpoint_is_sound(small_disk: Path) -> None:
    """A state has 11 MB: two checkpoints fit, the third does not."""
    done = train("--steps", "4096", "--checkpoint-every", "64", "--eval-every", "0", name="full", cwd=small_disk)
    one_error(done, 6, "cannot be written", "No space left on device", "the previous checkpoint is intact")
    run = small_disk / "runs/full"
    folder, _, refused = resume.newest_sound(run)
    assert not refused and folder.name == "step-000000128"
    assert not list((run / "checkpoints").glob(".*")), "the half-written one takes space"
    records = list(RunLog(run))
    assert [r["step"] for r in records] == list(range(8, records[-1]["step"] + 1, 8))
    shutil.rmtree(run / "checkpoints/step-000000064")
    again = train("--resume", "runs/full", "--steps", "136", cwd=small_disk)
    assert again.returncode == 0, again.stderr
    assert lines(run)[-1]["step"] == 136


def test_a_disk_full_of_log_lines_is_one_message_and_whole_lines(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(26 * 2**20 - 300_000))
    done = train("--steps", "4096", "--checkpoint-every", "0", "--eval-every", "0", name="full", cwd=small_disk)
    one_error(done, 6, "run.jsonl", "No space left on device")
    log = RunLog(small_disk / "runs/full")
    records = list(log)
    assert records and log.torn_bytes == 0


def test_a_read_only_place_is_one_error_and_nothing_is_made(tmp_path: Path) -> None:
    place = Path("/proc") if ROOT else tmp_path / "closed"
    if not ROOT:
        place.mkdir(mode=0o555)
    done = train("--steps", "64", "--set", f"runs_dir={place}/runs", name="x", cwd=tmp_path)
    one_error(done, 6, "cannot be made", "runs_dir=DIR")


@pytest.mark.skipif(not ROOT, reason="needs a read-only mount")
def test_a_run_on_a_read_only_file_system_can_be_read_but_not_resumed(small_disk: Path, made: Path) -> None:
    shutil.copytree(made / "runs", small_disk / "runs")
    if subprocess.run(["mount", "-o", "remount,ro", str(small_disk)]).returncode:
        pytest.skip("cannot remount read-only here")
    done = train("--resume", "runs/one", "--steps", "128", cwd=small_disk)
    one_error(done, 6, "Read-only file system")
    command = [sys.executable, "-m", "foxhunt_cli.cli", "diag", "summarize", "runs/one", "--json"]
    read = subprocess.run(command, cwd=small_disk, capture_output=True, text=True, timeout=60)
    assert read.returncode in (0, 1) and json.loads(read.stdout)


# Clock, twins, caches, memory --------------------------------------------------------------------------------------

CLOCK = """
import time, itertools, runpy, sys
back = itertools.count(1_700_000_000, -3600)
time.time = lambda: float(next(back))
sys.argv = ["foxhunt"] + sys.argv[1:]
runpy.run_module("foxhunt_cli.cli", run_name="__main__", alter_sys=False)
"""


def test_a_clock_that_goes_back_changes_nothing_but_the_time_field(copy: Path) -> None:
    options = [*SMALL, "--steps", "64", "--checkpoint-every", "32", "--name", "clock"]
    done = subprocess.run([sys.executable, "-c", CLOCK, "train", *options], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert lines(copy / "runs/clock") == lines(copy / "runs/one")
    assert state(copy / "runs/clock", 64) == state(copy / "runs/one", 64)
    times = [record["time"] for record in RunLog(copy / "runs/clock")]
    assert times[-1] <= times[0]
    command = [sys.executable, "-m", "foxhunt_cli.cli", "diag", "summarize", "runs/clock", "--json"]
    read = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    assert "internal error" not in read.stderr and json.loads(read.stdout), read.stderr


def test_of_two_trainers_in_one_run_the_second_is_refused_and_the_first_undisturbed(tmp_path: Path) -> None:
    run = tmp_path / "runs/long"
    first = start(*LONG, name="long", cwd=tmp_path)
    wait_for_lines(first, run, 16)
    one_error(train("--resume", "runs/long", cwd=tmp_path), 6, "another process")
    one_error(train("--steps", "64", name="long", cwd=tmp_path), 6, "exists")
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=60) == 143
    first.communicate()
    steps = [record["step"] for record in lines(run)]
    assert steps == list(range(8, steps[-1] + 1, 8))


def test_two_processes_fill_an_empty_kernel_cache_at_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    code = (
        "from foxhunt_cli.device.cpu import CpuDevice\nfrom foxhunt_cli.kernels.registry import kernels\n"
        "from foxhunt_cli.oracles.base import run_case, suites\n"
        "device = CpuDevice()\n"
        "device.compile([k for k in kernels().values() if k.file.stem in ('popart', 'polyak')])\n"
        "assert all(run_case(case, device).passed for case in suites()['popart'])\n"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], env=environment(XDG_CACHE_HOME=str(cache)), stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in both:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    left = [p.name for p in (cache / "foxhunt/cpu").iterdir() if p.suffix != ".so"]
    assert not left, "temporary files are left"


def test_a_data_set_larger_than_memory_is_one_clear_error(tmp_path: Path) -> None:
    limited = f"import resource, os, sys; resource.setrlimit(resource.RLIMIT_AS, ({3 * 2**30},) * 2); "
    limited += "os.execv(sys.executable, [sys.executable, '-m', 'foxhunt_cli.cli', *sys.argv[1:]])"
    options = ["train", "--device", "cpu", "--encoder", "mlp", "--steps", "64", "--set", "synthetic.snapshots=30000000"]
    done = subprocess.run(
        [sys.executable, "-c", limited, *options],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env=environment(OPENBLAS_NUM_THREADS="1"),
    )
    one_error(done, 3, "out of memory", "--max-snapshots")
    assert not (tmp_path / "runs").exists()
