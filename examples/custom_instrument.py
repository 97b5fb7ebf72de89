"""An instrument that is no preset: its tick, its value, its fee; and a market of your own as a CSV of book snapshots.

python examples/custom_instrument.py
"""

import csv
import random
from pathlib import Path

from foxhunt_cli import api

# Everything foxhunt must know of an instrument. Sizes in the file are divided by size_per_lot.
INSTRUMENT = {
    "symbol": "TULIP",
    "tick_size": "0.05",
    "tick_value_usd": 2.0,
    "fee_usd": 0.4,
    "size_per_lot": 10,
    "lot_limit": 2,
}


def main() -> None:
    file = write_market(Path("tulips.csv"), snapshots=12_000)
    run = api.train(
        paths=(file,), data__instrument=INSTRUMENT, steps=128, batch=4, rollout=8, encoder="mlp", device="cpu"
    )
    print(f"{run.manifest['data']['instrument']['symbol']}: {run.path}")


def write_market(path: Path, snapshots: int) -> Path:
    """A random walk with two levels a side; prices on the 0.05 grid, sizes in units, times in nanoseconds."""
    rng = random.Random(0)
    levels = [f"{side}_{what}_{level:02d}" for level in range(2) for side in ("bid", "ask") for what in ("px", "sz")]
    ticks, time = 2_000, 1_700_000_000_000_000_000
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["ts_ns", *levels])
        for _ in range(snapshots):
            time += rng.randint(1, 100) * 1_000_000
            ticks += rng.choice((-1, 0, 0, 0, 1))
            book = []
            for level in range(2):
                for price in (ticks - level, ticks + 1 + level):
                    book += [f"{price * 5 / 100:.2f}", rng.randint(1, 40) * 10]
            writer.writerow([time, *book])
    return path


if __name__ == "__main__":
    main()
