"""stdin, stdout and stderr as shells, services and editors leave them: closed, full, read by nobody, not UTF-8."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

FOXHUNT = f"'{sys.executable}' -m foxhunt_cli.cli"
TRAIN = f"{FOXHUNT} train --device cpu --steps 32 -b 2 --rollout 8 --encoder mlp --set synthetic.snapshots=20000"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess:
    """``line`` under bash; its status is that of foxhunt wherever it stands in a pipe."""
    command = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | environment)


def is_done(run: Path) -> bool:
    return json.loads((run / "manifest.json").read_text())["status"] == "done"


@pytest.mark.parametrize(
    "streams",
    ["2>&1 | head -n 1", "2>/dev/full", "2>&-", ">&-", ">&- 2>&-", "<&- >&- 2>&-"],
)
def test_training_goes_on_whoever_listens(tmp_path, monkeypatch, streams):
    monkeypatch.chdir(tmp_path)
    done = shell(f"{TRAIN} --name x {streams}")
    assert done.returncode == 0, done.stderr
    assert is_done(tmp_path / "runs" / "x")
    assert "internal error" not in done.stderr


def test_a_full_disk_under_stdout_is_an_error_of_files(workplace):
    done = shell(f"{FOXHUNT} diag summarize runs/demo >/dev/full")
    assert (done.returncode, done.stderr) == (6, "error: No space left on device\n")


@pytest.mark.parametrize("command", ["diag summarize runs/demo", "diag slots", "oracle --list", "doctor"])
def test_a_reader_that_leaves_a_table_is_no_failed_check(workplace, command):
    done = shell(f"{FOXHUNT} {command} | head -n 1")
    assert (done.returncode, done.stderr) == (0, "")


def test_names_that_stdout_cannot_encode_are_escaped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = shell(f"{FOXHUNT} init ö", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\xf6/run.toml" in done.stdout


def test_ctrl_c_in_a_command_is_one_line(workplace, foxhunt, monkeypatch):
    from foxhunt_cli.diag import summary

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(summary, "summarize", interrupted)
    assert foxhunt("diag", "summarize", "runs/demo") == (130, "", "error: interrupted\n")


def test_ctrl_c_is_the_way_to_stop_looking(workplace, foxhunt, monkeypatch):
    from foxhunt_cli.diag import tail

    def interrupted(*_: object):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(tail, "new_records", interrupted)
    status, _, err = foxhunt("diag", "tail", "runs/demo")
    assert (status, err) == (130, "")


@pytest.mark.parametrize("columns", ["0", "5", "40", "80"])
def test_no_figure_is_cut_however_narrow_the_terminal(workplace, columns):
    wide = shell(f"{FOXHUNT} diag summarize runs/demo", COLUMNS="200").stdout
    narrow = shell(f"{FOXHUNT} diag summarize runs/demo", COLUMNS=columns).stdout
    table = wide.partition("Over time")[2].partition("\n\n")[0].split()
    assert len(table) > 20
    assert narrow.partition("Over time")[2].partition("\n\n")[0].split() == table
    assert "…" not in narrow


def test_an_interval_stands_on_one_line_at_80_columns(workplace):
    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.cli.report import _BRIEF, _brief
    from foxhunt_cli.market.evaluate import Evaluation

    figures = {metric: 1.0 for metrics in _BRIEF.values() for metric in metrics}
    figures |= {"net USD / 1,000 steps": -18_778.0, "95 % interval, low": -19_350.0, "95 % interval, high": -18_194.0}
    evaluation = Evaluation.__new__(Evaluation)
    object.__setattr__(evaluation, "policies", {"moving average": figures})
    terminal = Terminal()
    terminal.out.width = 80
    with terminal.out.capture() as text:
        terminal.out.print(_brief(evaluation))
    assert "-19,350 to -18,194" in text.get()


@pytest.mark.parametrize("command", ["diag summarize runs/demo", "doctor", "diag slots lr_", "diag check runs/demo"])
def test_no_line_ends_in_blanks(workplace, command):
    lines = shell(f"{FOXHUNT} {command}").stdout.splitlines()
    assert lines and not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_closes_ends_a_run_cleanly_unless_under_nohup(tmp_path, ignored):
    line = TRAIN.replace("--steps 32", "--steps 2000000 --set eval_every=0")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        run = subprocess.Popen(["bash", "-c", f"exec {line} --name x"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    finally:
        signal.signal(signal.SIGHUP, before)
    log = tmp_path / "runs" / "x" / "run.jsonl"
    try:
        deadline = time.monotonic() + 120
        while not (log.exists() and log.stat().st_size):
            assert time.monotonic() < deadline and run.poll() is None
            time.sleep(0.05)
        run.send_signal(signal.SIGHUP)
        if ignored:
            with pytest.raises(subprocess.TimeoutExpired):
                run.wait(2)
        else:
            assert run.wait(60) == 129
            assert list((tmp_path / "runs" / "x" / "checkpoints").glob("step-*"))
    finally:
        run.kill()
        run.wait()


def test_the_display_shows_numbers_that_are_not_finite(capsys):
    from rich.console import Console

    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.train.progress import Progress

    record = {
        "step": 64,
        "loss": {"pi": None, "v": None},
        "signals": {"entropy_observed_ema": None},
        "market": {"trades_closed": 3.0, "win_rate": None},
    }
    progress = Progress(Terminal(), 128)
    progress.update(record, float("nan"), 1000.0)
    console = Console(width=100)
    console.print(progress._panel(record, 1000.0))
    assert "pi not finite" in capsys.readouterr().out
    assert "pi not finite" in progress._line(record, 1000.0)


def test_a_dumb_terminal_gets_lines(monkeypatch):
    from rich.console import Console

    from foxhunt_cli.cli.console import Terminal

    for name, live in (("dumb", False), ("xterm", True)):
        monkeypatch.setenv("TERM", name)
        terminal = Terminal()
        terminal.__dict__["err"] = Console(stderr=True, force_terminal=True)
        assert terminal.live is live


def test_the_frame_of_the_display_stands_still():
    from rich.console import Console

    from foxhunt_cli.cli.console import Terminal
    from foxhunt_cli.train.progress import Progress

    widths = set()
    for loss, step in ((0.1, 16), (-1.234e-8, 900_000)):
        record = {
            "step": step,
            "loss": {"pi": loss, "v": loss},
            "signals": {"entropy_observed_ema": loss},
            "market": {"trades_closed": 3.0, "win_rate": 0.5 if step > 16 else None},
        }
        progress = Progress(Terminal(), 1_000_000)
        for _ in range(step % 37):
            progress.update(record, loss, 1000.0)
        progress.update(record, loss, 1000.0)
        console = Console(width=100)
        with console.capture() as text:
            console.print(progress._panel(record, 1000.0))
        widths |= {len(line) for line in text.get().splitlines()}
    assert len(widths) == 1
