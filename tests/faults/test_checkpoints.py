"""Checkpoints against killed writers, flipped bits, foreign manifests and hostile files: refused, never a crash."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from foxhunt_cli.diag.writer import FileError
from foxhunt_cli.train import checkpoint, resume, run_dir

TOTALS = {"pnl_usd": 0.125, "trades": 3.0}


def engine(fill: float) -> SimpleNamespace:
    """What ``save`` needs of an engine: named arrays and a device that downloads them."""
    arrays = {"params": np.full(50, fill, np.float32), "adam_m": np.arange(7, dtype=np.float32)}
    device = SimpleNamespace(download=np.array, write=lambda array, host: array.__setitem__(..., host))
    return SimpleNamespace(arrays=arrays, device=device)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with checkpoints of steps 8 and 16."""
    (tmp_path / "checkpoints").mkdir()
    for step in (8, 16):
        checkpoint.save(engine(step), tmp_path / "checkpoints", step, TOTALS, 1.5)
    return tmp_path


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the program runs after it."""


def kill_at(monkeypatch, moment: int) -> list[str]:
    """Before the ``moment``-th operation on files that changes something, the process is gone. Names of those done."""
    done: list[str] = []

    def counted(name: str, operation):
        def wrapper(*args, **kwargs):
            if len(done) >= moment:
                raise Killed
            done.append(name)
            return operation(*args, **kwargs)

        return wrapper

    for owner, name in ((Path, "mkdir"), (Path, "rename"), (Path, "replace"), (Path, "open"), (os, "fsync")):
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    monkeypatch.setattr(checkpoint.shutil, "rmtree", counted("rmtree", lambda p, **_: p.exists() and remove(p)))
    monkeypatch.setattr(Path, "unlink", counted("unlink", Path.unlink))
    return done


remove = shutil.rmtree


@pytest.mark.parametrize("step", [16, 24])
def test_a_writer_killed_at_any_file_operation_leaves_a_sound_checkpoint(tmp_path: Path, step: int) -> None:
    """step 16 is written again with another state, as after a resume from 8; 24 is new."""
    moments = 0
    for moment in range(40):
        folder = tmp_path / str(moment)
        (folder / "checkpoints").mkdir(parents=True)
        for old in (8, 16):
            checkpoint.save(engine(old), folder / "checkpoints", old, TOTALS, 1.5)
        with pytest.MonkeyPatch.context() as patch:
            kill_at(patch, moment)
            try:
                checkpoint.save(engine(99), folder / "checkpoints", step, TOTALS, 1.5)
                finished = True
            except Killed:
                finished = False
        found, arrays, _ = resume.newest_sound(folder)
        expected = {int(found.name[5:])} if not finished else {step}
        assert arrays["params"][0] in ({float(n) for n in expected} | {99.0})
        checkpoint.save(engine(99), folder / "checkpoints", step, TOTALS, 1.5)
        assert resume.newest_sound(folder)[1]["params"][0] == 99.0, f"the next writer cannot go on after {moment}"
        assert not list((folder / "checkpoints").glob(".*"))
        moments += not finished
        if finished:
            break
    assert finished and moments >= 6, "every operation was tried"


def test_a_sound_checkpoint_of_the_same_state_is_left_alone(run: Path, monkeypatch) -> None:
    monkeypatch.setattr(Path, "rename", lambda *_: pytest.fail("written again"))
    assert checkpoint.save(engine(16), run / "checkpoints", 16, TOTALS, 2.0).name == "step-000000016"


def test_leftovers_of_a_killed_writer_with_the_same_process_id_do_not_stop_the_next(run: Path) -> None:
    for name in (f".step-000000024.{os.getpid()}", ".step-000000024.part"):
        (run / "checkpoints" / name).mkdir()
    checkpoint.save(engine(24), run / "checkpoints", 24, TOTALS, 1.5)
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == [f"step-{n:09d}" for n in (8, 16, 24)]


def test_damaged_newer_checkpoints_do_not_push_out_sound_ones(run: Path) -> None:
    for step in (900, 1000):
        (run / "checkpoints" / f"step-{step:09d}").mkdir()
    checkpoint.save(engine(24), run / "checkpoints", 24, TOTALS, 1.5)
    checkpoint.prune(run, 1, 24)
    assert [p.name for p in checkpoint.saved(run)] == ["step-000000024", "step-000000900", "step-000001000"]
    assert resume.newest_sound(run)[0].name == "step-000000024"


def test_checkpoints_are_in_the_order_of_their_steps(run: Path) -> None:
    for name in ("step-10000000000", "step-999999999", "step-x", "step-"):
        (run / "checkpoints" / name).mkdir()
    assert [p.name for p in checkpoint.saved(run)][-2:] == ["step-999999999", "step-10000000000"]


@pytest.mark.parametrize("file", ["manifest.json", "state.safetensors"])
def test_any_flipped_bit_is_refused_and_the_previous_checkpoint_taken(run: Path, file: str) -> None:
    path = run / "checkpoints/step-000000016" / file
    good = path.read_bytes()
    for at in range(len(good)):
        bad = bytearray(good)
        bad[at] ^= 1 << (at % 8)
        path.write_bytes(bad)
        found, arrays, refused = resume.newest_sound(run)
        assert found.name == "step-000000008" and arrays["params"][0] == 8.0, at
        assert len(refused) == 1 and str(path.parent) in refused[0]
    path.write_bytes(good)
    assert resume.newest_sound(run)[0].name == "step-000000016"


@pytest.mark.parametrize("file", ["manifest.json", "state.safetensors"])
def test_any_truncation_is_refused(run: Path, file: str) -> None:
    path = run / "checkpoints/step-000000016" / file
    good = path.read_bytes()
    for size in range(0, len(good), 7):
        path.write_bytes(good[:size])
        assert resume.newest_sound(run)[0].name == "step-000000008", size


def reseal(folder: Path, payload: bytes, **facts) -> None:
    """Write a state whose digests are right: only its contents are wrong."""
    import hashlib

    manifest = json.loads((folder / "manifest.json").read_text())
    manifest |= {"sha256": hashlib.sha256(payload).hexdigest(), **facts}
    manifest["self"] = run_dir.json_digest(manifest)
    (folder / "state.safetensors").write_bytes(payload)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_forged_state_with_right_digests_is_an_error_or_arrays_never_a_crash(run: Path) -> None:
    folder = run / "checkpoints/step-000000016"
    good = (folder / "state.safetensors").read_bytes()
    chance, refused = random.Random(0), 0
    for _ in range(600):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            bad[chance.randrange(min(len(bad), 200))] = chance.randrange(256)
        reseal(folder, bytes(bad[: chance.choice([len(bad), chance.randrange(len(bad))])]))
        try:
            checkpoint.restore(engine(0), checkpoint.load(folder))
        except FileError:
            refused += 1
    assert refused > 400


def test_a_header_that_claims_terabytes_allocates_nothing(run: Path) -> None:
    folder = run / "checkpoints/step-000000016"
    for header in (
        b'{"params":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}',
        b'{"params":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,16]}}',
        b'{"params":{"dtype":"F32","shape":[0,99999999999999],"data_offsets":[0,0]}}',
    ):
        reseal(folder, len(header).to_bytes(8, "little") + header + bytes(16))
        with pytest.raises(FileError):
            checkpoint.restore(engine(0), checkpoint.load(folder))
    reseal(folder, (1 << 62).to_bytes(8, "little") + bytes(64))
    with pytest.raises(FileError, match="not a safetensors file"):
        checkpoint.load(folder)


@pytest.mark.parametrize(
    ("facts", "words"),
    [({"layout": "0"}, "another slot layout"), ({"format": 1}, "expected format 3, got 1")],
)
def test_checkpoints_of_another_version_are_refused_with_the_reason(run: Path, facts: dict, words: str) -> None:
    folder = run / "checkpoints/step-000000016"
    reseal(folder, (folder / "state.safetensors").read_bytes(), **facts)
    with pytest.raises(FileError, match=words):
        checkpoint.load(folder)


def test_a_state_of_other_sizes_or_kinds_of_number_is_refused(run: Path) -> None:
    other = engine(1.0)
    other.arrays["params"] = np.zeros(51, np.float32)
    with pytest.raises(FileError, match=r"'params': expected float32\[51\], got float32\[50\]"):
        checkpoint.restore(other, checkpoint.load(run / "checkpoints/step-000000016"))
    other.arrays["params"] = np.zeros(50, np.int32)
    with pytest.raises(FileError, match=r"expected int32\[50\], got float32\[50\]"):
        checkpoint.restore(other, checkpoint.load(run / "checkpoints/step-000000016"))


def test_a_run_without_a_sound_checkpoint_says_so(run: Path) -> None:
    for folder in (run / "checkpoints").iterdir():
        (folder / "state.safetensors").write_bytes(b"")
    with pytest.raises(FileError, match="no sound checkpoint to resume from .*digest.*; start a new run"):
        resume.newest_sound(run)


def test_a_full_disk_keeps_the_previous_checkpoint_and_names_the_reason(run: Path, monkeypatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left on device; the previous checkpoint is intact"):
        checkpoint.save(engine(24), run / "checkpoints", 24, TOTALS, 1.5)
    assert resume.newest_sound(run)[0].name == "step-000000016"
    assert not list((run / "checkpoints").glob(".*"))
