"""A long run in resumed pieces: constant memory, a sound tree, nothing that is not finite, a whole log.

``python tests/soak.py --steps 100000 --pieces 5`` trains on the CPU (``--encoder mlp``), every piece a process of its
own that resumes the one before. After each piece it checks the state and the log, and prints a line; it ends non-zero
at the first finding. It takes minutes to hours, so no test run includes it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from foxhunt_cli.diag.reader import RunLog
from foxhunt_cli.train.resume import newest_sound

LOG_EVERY, ROLLOUT = 8, 16
SIZES = ["--encoder", "mlp", "--updates", "1", "--rollout", str(ROLLOUT), "--eval-every", "0", "--set", "holdout=0"]
SIZES += ["--set", "synthetic.snapshots=200000", "--set", f"log_every={LOG_EVERY}"]
GROWTH_MB = 16.0  # what a piece may grow after its first third, and pieces between them


def resident_mb(process: int) -> float | None:
    """Memory that a process holds; None once it has gone."""
    try:
        text = Path(f"/proc/{process}/statm").read_text().split()
    except (OSError, ValueError):
        return None
    return int(text[1]) * 4096 / 2**20


def piece(folder: Path, steps: int, options: list[str]) -> list[float]:
    """Train up to ``steps``; memory samples in MB. Raises SystemExit where the process fails."""
    run = folder / "runs" / "soak"
    how = ["--resume", str(run), "--steps", str(steps)] if run.exists() else [
        *SIZES, *options, "--steps", str(steps), "--name", "soak"
    ]  # fmt: skip
    command = [sys.executable, "-m", "foxhunt_cli.cli", "train", "--quiet", *how]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    samples = []
    while process.poll() is None:
        if (held := resident_mb(process.pid)) is not None:
            samples.append(held)
        time.sleep(0.25)
    words = process.communicate()[1]
    if process.returncode:
        raise SystemExit(f"up to step {steps:,}: exit status {process.returncode}: {words}")
    return samples


def growth(samples: list[float]) -> float:
    """MB between the median after the start and the median at the end (the final save copies the state once)."""
    steady = samples[len(samples) // 3 : -4] or samples
    part = max(1, len(steady) // 5)
    return float(np.median(steady[-part:]) - np.median(steady[:part]))


def state_problems(run: Path) -> tuple[list[str], dict[str, float]]:
    """What is wrong with the newest checkpoint, and figures of its tree."""
    folder, arrays, refused = newest_sound(run)
    problems = list(refused)
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            problems.append(f"{folder.name}: {name}: {int((~np.isfinite(array)).sum())} values are not finite")
    tree = arrays["per_tree"]
    capacity = tree.size // 2
    nodes = np.arange(1, capacity)
    if not np.array_equal(tree[2 * nodes] + tree[2 * nodes + 1], tree[nodes]):
        problems.append(f"{folder.name}: a node of the tree is not the sum of its children")
    total = float(tree[capacity:].astype(np.float64).sum())
    drift = abs(float(tree[1]) / total - 1.0)
    if drift > 1e-5:
        problems.append(f"{folder.name}: root {tree[1]:.9g}, leaves {total:.9g}")
    return problems, {"drift": drift, "leaves": int((tree[capacity:] > 0).sum())}


def log_problems(run: Path, ends: list[int]) -> list[str]:
    """What is wrong with the log after pieces that ended at steps ``ends``: lines lost, torn or not finite."""
    due = sorted({*range(LOG_EVERY, ends[-1] // ROLLOUT + 1, LOG_EVERY), *(end // ROLLOUT for end in ends)})
    log, problems, iterations = RunLog(run), [], []
    for record in log:
        iterations.append(record["iteration"])
        if record["nonfinite"]:
            problems.append(f"iteration {iterations[-1]}: not finite: {', '.join(record['nonfinite'])}")
    if iterations != due:
        problems.append(f"{len(iterations):,} lines where {len(due):,} were due, or in another order")
    if log.torn_bytes:
        problems.append(f"{log.torn_bytes} bytes of a torn line")
    return problems[:5]


def main() -> int:
    """Runs what the arguments say; 0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000, help="environment steps of a row in all")
    parser.add_argument("--pieces", type=int, default=5, help="processes, each resuming the one before")
    parser.add_argument("--folder", type=Path, help="where to keep the run; a temporary folder by default")
    parser.add_argument("options", nargs="*", help="more options of 'foxhunt train', after --")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    run, begin, each = folder / "runs" / "soak", time.perf_counter(), -(-options.steps // options.pieces // 16) * 16
    second = float("inf")
    for number in range(1, options.pieces + 1):
        samples = piece(folder, each * number, options.options)
        problems, tree = state_problems(run)
        problems += log_problems(run, [each * n for n in range(1, number + 1)])
        grown, highest = growth(samples), max(samples)
        if number > 1 and grown > GROWTH_MB:  # in the first piece the replay fills pages that were never touched
            problems.append(f"memory grew by {grown:.1f} MB")
        second = highest if number == 2 else second
        if number > 2 and highest > second + GROWTH_MB:
            problems.append(f"the second piece had {second:.0f} MB at most")
        print(
            f"step {each * number:,}: {highest:.0f} MB at most, {grown:+.1f} MB in the piece; "
            f"tree root / leaves - 1 = {tree['drift']:.1e} over {tree['leaves']:,} leaves; "
            f"{'; '.join(problems) or 'nothing found'}",
            flush=True,
        )
        if problems:
            return 1
    took = time.perf_counter() - begin
    print(f"{each * options.pieces:,} steps in {options.pieces} pieces, {took:.0f} s, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
