"""What happens to a run when its GPU has no memory, or is lost in the middle. Needs a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from runs import SMALL, lines, one_error, state, train

from foxhunt_cli.device.cuda import usable_gpus

GPUS, REASON = usable_gpus()
pytestmark = pytest.mark.skipif(not GPUS, reason=f"needs a GPU: {REASON}")

STEPS, LOST_AT, EVERY = 800, 70, 160
# Trains with the command's own arguments, and makes the GPU fault after one of the iterations.
LOST = f"""
import sys
import cupy
from foxhunt_cli.cli.app import main
from foxhunt_cli.train.engine import Engine

stray = cupy.RawKernel('extern "C" __global__ void stray(int* p) {{ p[threadIdx.x] = 1; }}', "stray")
iterate = Engine.iterate

def fails(engine):
    iterate(engine)
    if engine.done == {LOST_AT}:
        with engine.device.stream:
            stray((1,), (1,), (8,))

Engine.iterate = fails
main(sys.argv[1:])
"""
# Holds all memory of the GPU but a gigabyte until its input ends.
HOLD = """
import sys
import cupy
free, _ = cupy.cuda.runtime.memGetInfo()
block = cupy.cuda.alloc(free - 2**30)
print("held", flush=True)
sys.stdin.read()
"""
BIG = ["-b", "4096", "--rollout", "64", "--set", "replay_capacity=1048576"]  # gigabytes
GPU = ["--device", "cuda", "--set", f"checkpoint_every={EVERY}"]


def test_a_gpu_that_is_lost_costs_what_came_since_the_last_checkpoint(tmp_path: Path) -> None:
    whole = train(*GPU, "--steps", str(STEPS), name="whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    command = [sys.executable, "-c", LOST, "train", *SMALL, *GPU, "--steps", str(STEPS), "--name", "lost"]
    lost = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    one_error(lost, 3, "fault")
    assert train("--resume", "runs/lost", cwd=tmp_path).returncode == 0
    assert state(tmp_path / "runs/lost", STEPS) == state(tmp_path / "runs/whole", STEPS)
    assert lines(tmp_path / "runs/lost") == lines(tmp_path / "runs/whole")


def test_a_gpu_without_memory_is_one_error_and_leaves_no_run(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline().strip() == "held"
        full = train(*GPU, *BIG, "--steps", "64", name="big", cwd=tmp_path)
    finally:
        holder.communicate("")
    one_error(full, 3, "out of GPU memory", "lower --batch".capitalize())
    assert not (tmp_path / "runs").exists()
