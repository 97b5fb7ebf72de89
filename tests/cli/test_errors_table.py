"""Wrong inputs, as people make them: each ends in one line that names the thing and the fix, and in its status."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from foxhunt_cli.train import run_dir


def corrupt(folder: Path) -> None:
    with (folder / "runs/demo/run.jsonl").open("a") as file:
        file.write("not json\n{}\n")


def empty(folder: Path) -> None:
    (folder / "runs/demo/run.jsonl").write_text("")


def without_checkpoints(folder: Path) -> None:
    for file in (folder / "runs/demo/checkpoints").rglob("*.*"):
        file.unlink()


def broken_manifest(folder: Path) -> None:
    (folder / "runs/demo/manifest.json").write_text("{")


def change_manifest(folder: Path, change) -> None:
    path = folder / "runs/demo/manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    run_dir.write_manifest(path.parent, manifest)


def other_data(folder: Path) -> None:
    change_manifest(folder, lambda manifest: manifest["data"].update(digest="0"))


def text_files(folder: Path) -> None:
    (folder / "bad.toml").write_text("steps = = 3\n")
    (folder / "key.toml").write_text("stepz = 3\n")
    (folder / "type.toml").write_text('steps = "many"\n')
    (folder / "no-isv.toml").write_text("lr_pi = 0.1\n")
    (folder / "seeds.toml").write_text("[isv]\nlr_pie = 0.1\n")
    (folder / "words.csv").write_text("hello\nworld\n")
    (folder / "empty.csv").touch()
    (folder / "table.toml").write_text("data = 5\n")
    (folder / "packed.csv.gz").write_bytes(b"\x1f\x8b\x08\x00 and so on")


def binary(folder: Path) -> None:
    (folder / "bin.csv").write_bytes(b"\x1b[31m\x07\x00,\x1b]0;title\x07,x\n1,2,3\n")


def folder_in_the_way(folder: Path) -> None:
    (folder / "folder.fhx").mkdir()


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe.csv")


def taken(folder: Path) -> None:
    (folder / "run.toml").touch()


def blocked(folder: Path) -> None:
    (folder / "file").touch()


def nothing(folder: Path) -> None:
    """As a user has it after a first run."""


ES = "ESH4.mbp-10.dbn.zst"
TABLE = [
    # command line, how the folder was spoilt, status, words of the message
    ("diag summarize runs/demo", corrupt, 5, ["line 13", "not JSON", "head -n 12"]),
    ("diag summarize runs/demo", empty, 5, ["no whole line yet"]),
    ("diag summarize runs", nothing, 6, ["runs/run.jsonl", "no such run log"]),
    ("diag check runs/none", nothing, 6, ["runs/none", "no such run log"]),
    ("diag check", nothing, 2, ["Missing argument 'RUN'", "diag check --help"]),
    ("diag compare runs/demo", nothing, 2, ["two or more runs, got 1"]),
    ("diag compare runs/demo runs/none", nothing, 6, ["runs/none"]),
    ("diag tail runs/none", nothing, 6, ["runs/none"]),
    ("diag tail runs/demo -n -1", nothing, 2, ["--lines: expected 0 or more", "-1"]),
    ("diag plot runs/demo -o a.gif", nothing, 2, [".png, .svg or .html", "a.gif"]),
    ("diag plot runs/demo -o file/a.png", blocked, 6, ["file/a.png", "cannot be written"]),
    ("diag plot runs/none", nothing, 6, ["runs/none"]),
    ("diag export runs/demo", nothing, 2, ["Missing option '-o'"]),
    ("diag export runs/demo -o a.xlsx", nothing, 2, [".csv, .parquet or a folder", "a.xlsx"]),
    ("diag export runs/demo loss.totl -o a.csv", nothing, 2, ["loss.totl", "did you mean 'loss.total'?"]),
    ("diag export runs/demo -o file/a.csv", blocked, 6, ["file/a.csv", "cannot be written"]),
    ("diag slots lr_pie", nothing, 2, ["no slot contains 'lr_pie'", "lists all"]),
    ("diag slots --kind tunabel", nothing, 2, ["tunable, control, signal, diag", "'tunabel'"]),
    ("diag pipeline trainig", nothing, 2, ["training, playing, following", "'trainig'"]),
    ("diag pipeline --set encoder=mamba", nothing, 2, ["encoder should be", "'mamba'"]),
    ("diag kernels lobsin", nothing, 2, ["no kernel contains 'lobsin'"]),
    ("diag kernels lobsim --arch sm_10", nothing, 2, ["--arch", "sm_90", "'sm_10'"]),
    ("diag plotting runs/demo", nothing, 2, ["No such command 'plotting'"]),
    ("diag tail words.csv --no-follow", text_files, 5, ["words.csv", "not JSON"]),
    ("eval runs/none", nothing, 6, ["runs/none/manifest.json", "expected a run directory"]),
    ("eval runs/demo", broken_manifest, 6, ["manifest.json", "not valid JSON"]),
    ("eval runs/demo", without_checkpoints, 6, ["checkpoint"]),
    ("eval runs/demo --device cpu", other_data, 5, ["digest differs", "restore the same file"]),
    ("eval runs/demo --device gpu", nothing, 2, ["auto, cpu, cuda or cuda:N", "'gpu'"]),
    ("eval runs/demo --blotter trades.xlsx", nothing, 2, [".csv or .parquet", "trades.xlsx"]),
    ("eval runs/demo --device cpu --policy greedy", nothing, 2, ["pi, q or one of agent", "'greedy'"]),
    ("init", taken, 6, ["run.toml", "left as it is"]),
    ("init file/settings", blocked, 6, ["file/settings/run.toml", "cannot be written"]),
    ("train --config bad.toml", text_files, 2, ["bad.toml", "not valid TOML"]),
    ("train --config key.toml", text_files, 2, ["key.toml", "'stepz'", "did you mean 'steps'?"]),
    ("train --config type.toml", text_files, 2, ["type.toml", "steps should be a valid integer", "'many'"]),
    ("train --seeds no-isv.toml", text_files, 2, ["no-isv.toml", "table [isv]", "'lr_pi'"]),
    ("train --seeds seeds.toml", text_files, 2, ["seeds.toml", "lr_pie", "did you mean 'lr_pi'?"]),
    ("train --set isv.lr_pi=nan", nothing, 2, ["lr_pi", "nan", "allowed range"]),
    ("train --set isv.gamma=2", nothing, 2, ["gamma", "2", "[0.9, 0.999]"]),
    ("train --device cpu --set controllers.gama=on", nothing, 2, ["controllers.gama: no such controller", "gamma"]),
    ("train --device cpu --set replay_capacity=1000", nothing, 2, ["replay_capacity: got 1,000", "power of two"]),
    ("train --device cpu -b 512 --set replay_capacity=1024", nothing, 2, ["capacity: got 1,024", "a smaller batch"]),
    ("train --device cpu --data words.csv", text_files, 5, ["words.csv"]),
    ("train --device cpu --data empty.csv", text_files, 5, ["empty.csv"]),
    ("train --device cpu --data runs", nothing, 6, ["runs"]),
    ("train --device cpu --data bin.csv", binary, 5, ["bin.csv", "bid_px_00"]),
    ("train --data ESH4.mbp-10.dbn.zst --market noise", nothing, 2, ["--market", "ESH4.mbp-10.dbn.zst", "leave out"]),
    ("train --start 2024-01-02", nothing, 2, ["--start", "--data"]),
    ("train --symbol NQH4", nothing, 2, ["--symbol", "--data"]),
    ("train --config table.toml", text_files, 2, ["table.toml", "data should be a table, got 5"]),
    ("train -b 65536 --rollout 16", nothing, 2, ["65536 x 16 needs at least 6,291,456", "a smaller --batch"]),
    ("train --steps 99999999999999999999", nothing, 2, ["--steps", "less than or equal to 1000000000000"]),
    ("train --set log_every=99999999999999999999", nothing, 2, ["log_every", "1000000000000"]),
    ("train --fee inf", nothing, 2, ["--fee", "inf"]),
    ("train --fee 1e308", nothing, 2, ["--fee", "1e+308"]),
    ("train --session-gap 1e300", nothing, 2, ["--session-gap", "1e+300"]),
    ("train --instrument-id 99999999999", nothing, 2, ["--instrument-id", "4294967295"]),
    ("train --tick-size 1e300", nothing, 2, ["--tick-size", "at most 1,000,000"]),
    ("train --max-snapshots 99999999999999999999", nothing, 2, ["--max-snapshots", "10000000000"]),
    ("train --set data.tick_value=1e300", nothing, 2, ["data.tick_value", "1e+300"]),
    ("train --set data.stride=99999999999999999999", nothing, 2, ["data.stride"]),
    ("train --set synthetic.edge=inf", nothing, 2, ["synthetic.edge", "less than or equal to 1000"]),
    ("train --set synthetic.seed=99999999999999999999", nothing, 2, ["synthetic.seed"]),
    ("train --set synthetic.sessions=99999999", nothing, 2, ["synthetic.sessions", "10000"]),
    ("train --set synthetic.snapshots=99999999999999", nothing, 2, ["synthetic.snapshots"]),
    ("train --config /dev/zero", nothing, 2, ["/dev/zero", "at most 1,048,576 bytes"]),
    ("train --device cpu --data no\udcff.csv", nothing, 6, ["b'no\\xff.csv'", "rename"]),
    ("train --device cpu --max-snapshots 5", nothing, 5, ["5 snapshots are too few", "give more data"]),
    ("train --resume runs/demo -b 8", nothing, 2, ["--batch", "batch = 4", "--steps, --log-every"]),
    ("smoke --device gpu", nothing, 2, ["auto, cpu, cuda or cuda:N", "'gpu'"]),
    ("oracle rng --device gpu", nothing, 2, ["auto, cpu, cuda or cuda:N", "'gpu'"]),
    ("train --resume runs/none", nothing, 6, ["runs/none"]),
    ("train --resume runs/demo --config key.toml", text_files, 2, ["keeps its configuration"]),
    ("train --device cpu --set synthetic.snapshots=20000 --set runs_dir=file", blocked, 6, ["file", "runs_dir"]),
    ("oracle --case nosuchcase", nothing, 2, ["no case has 'nosuchcase'"]),
    ("oracle --precision fp16", nothing, 2, ["fp32 or tf32", "'fp16'"]),
    ("bench throughput --seconds 0", nothing, 2, ["--seconds", "0.1"]),
    ("bench kernels --copy-gbps nan", nothing, 2, ["--copy-gbps", "0.001"]),
    ("bench learn --plot a.pdf", nothing, 2, ["--plot", ".png", "a.pdf"]),
    ("bench throughput -b 0", nothing, 2, ["--batch", "got 0"]),
    ("data info none.dbn.zst", nothing, 6, ["none.dbn.zst"]),
    ("data info words.csv", text_files, 5, ["words.csv"]),
    ("data info packed.csv.gz", text_files, 5, ["packed.csv.gz", "gunzip"]),
    ("data make-synthetic --snapshots 2000 -o folder.fhx", folder_in_the_way, 6, ["is a folder; name a file"]),
    ("data info pipe.csv", pipe, 6, ["pipe.csv", "is a pipe", "write them to a file"]),
    (f"data info {ES} --instrument-id 5", nothing, 5, [ES, "instrument id 5 is not in the file", "1 (ESH4)"]),
    (f"data info {ES} --tick-size 0.3", nothing, 5, [ES, "record 0", "0.3 tick grid", "--tick-size 0.25"]),
    (f"data info {ES} --start 2030-01-01", nothing, 5, [ES, "it has 2024-01-01T23:00:00", "--start and --end"]),
    (f"data info {ES} --end 2024-01-01T23:00:20 --stats", nothing, 5, [ES, "at least 1,000", "leave --stats out"]),
    (f"data info {ES} --session-gap 1e300", nothing, 2, ["--session-gap", "1000000000"]),
    ("data make-synthetic -o m\udcff.fhx", nothing, 2, ["--output", "UTF-8"]),
    ("data convert ESH4.mbp-10.dbn.zst", nothing, 2, ["Missing option"]),
    ("doctor now", nothing, 2, ["unexpected extra argument"]),
]


@pytest.mark.parametrize(
    ("line", "spoil", "status", "words"), TABLE, ids=[f"{row[0]} {row[1].__name__}" for row in TABLE]
)
def test_one_line_that_names_the_thing_and_the_fix(workplace, foxhunt, line, spoil, status, words):
    if "--arch" in line:
        pytest.importorskip("cupy_backends.cuda.libs.nvrtc")
    spoil(workplace)
    before = sorted(workplace.glob("runs/*"))
    got, out, err = foxhunt(*line.split())
    errors = [text for text in err.splitlines() if text.startswith("error: ")]
    assert (got, len(errors)) == (status, 1), err
    for word in words:
        assert word in errors[0]
    assert "Traceback" not in err and "internal error" not in err
    assert all(character.isprintable() or character == "\n" for character in err)
    assert sorted(workplace.glob("runs/*")) == before
