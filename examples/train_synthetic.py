"""Train on the synthetic market and print what ``foxhunt diag summarize`` leads with.

python examples/train_synthetic.py
"""

from foxhunt_cli import api
from foxhunt_cli.diag.verdict import verdicts


def main() -> None:
    run = api.train(steps=256, batch=4, rollout=8, encoder="mlp", device="cpu", synthetic__snapshots=20_000)
    print(f"trained: {run.path}")
    for verdict in verdicts(run.summary()):
        print(f"{verdict.mark:<5} {verdict.topic}: {verdict.text}")
    agent = run.evaluate("cpu").policies["agent"]
    print(f"held-out: {agent['net USD']:+,.0f} USD net, {agent['trades']:.0f} trades")


if __name__ == "__main__":
    main()
