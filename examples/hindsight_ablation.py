"""The same run with and without hindsight, side by side. Real comparisons need more steps and several seeds.

python examples/hindsight_ablation.py
"""

from foxhunt_cli import api
from foxhunt_cli.diag.compare import load, rows


def main() -> None:
    small = dict(steps=256, batch=4, rollout=8, encoder="mlp", device="cpu", synthetic__snapshots=20_000)
    runs = [api.train(hindsight=label, name=f"hindsight-{label}", **small) for label in ("path", "none")]
    print(f"{'':<28}" + "".join(f"{run.config.hindsight:>14}" for run in runs))
    for row in rows(load([run.path for run in runs])):
        print(f"{row.label:<28}" + "".join(f"{value:>14,.4g}" for value in row.values))


if __name__ == "__main__":
    main()
