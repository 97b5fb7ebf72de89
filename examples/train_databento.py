"""Train on a Databento MBP-10 file. Give your own as an argument; without one, a small synthetic file is written.

python examples/train_databento.py
python examples/train_databento.py ESH4.mbp-10.dbn.zst
"""

import subprocess
import sys
from pathlib import Path

from foxhunt_cli import api


def main() -> None:
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else make_file(Path("ESH4.mbp-10.dbn.zst"))
    # The instrument (ES) is inferred from the symbol in the file; data__instrument="NQ" would name another.
    run = api.train(paths=(file,), steps=128, batch=4, rollout=8, encoder="mlp", device="cpu")
    data = run.manifest["data"]
    print(
        f"{data['source']}: {data['train_snapshots']:,} snapshots trained on, {data['held_out_snapshots']:,} held out"
    )
    print(f"instrument {data['instrument']['symbol']}, run {run.path}")


def make_file(path: Path) -> Path:
    command = ["data", "make-synthetic", "--preset", "realistic", "--snapshots", "20000", "-o", str(path)]
    subprocess.run([sys.executable, "-m", "foxhunt_cli.cli", *command], check=True)
    return path


if __name__ == "__main__":
    main()
