"""``foxhunt eval`` on a real run: the table, the bound above all, a blotter that adds up, pictures."""

from __future__ import annotations

import csv
import json

import pytest

pytestmark = pytest.mark.usefixtures("workplace")


def test_the_table_fits_80_columns_and_states_its_conventions(foxhunt):
    status, out, err = foxhunt("eval", "runs/demo", "--device", "cpu")
    assert status == 0, err
    table = out.split("\n39 rows")[0].split(" row of ")[0]
    assert max(map(len, table.splitlines()[:-1])) <= 80
    for words in ("bootstrap over rows", "flat minutes included", "perfect foresight"):
        assert words in out


def test_nobody_beats_the_bound(foxhunt):
    policies = json.loads(foxhunt("eval", "runs/demo", "--device", "cpu", "--json")[1])["policies"]
    assert list(policies)[0] == "agent"
    assert policies["bound"]["net USD"] > 0
    assert all(figures["net USD"] <= policies["bound"]["net USD"] for figures in policies.values())
    assert policies["hold"]["net USD"] == 0.0


@pytest.mark.parametrize("policy", ["random", "flow", "bound"])
def test_the_blotter_adds_up_to_the_metrics(workplace, foxhunt, policy):
    status, out, err = foxhunt(
        "eval", "runs/demo", "--device", "cpu", "--policy", policy, "--blotter", "b.csv", "--json"
    )
    assert status == 0, err
    figures = json.loads(out)["policies"][policy]
    with (workplace / "b.csv").open() as file:
        trades = list(csv.DictReader(file))
    assert len(trades) == figures["trades"] > 0
    assert sum(float(t["net_usd"]) for t in trades) == pytest.approx(figures["net USD"], abs=0.01)
    assert sum(float(t["fees_usd"]) for t in trades) == pytest.approx(figures["fees USD"], abs=0.01)
    assert sum(float(t["net_usd"]) > 0 for t in trades) / len(trades) == pytest.approx(figures["win rate"])
    excursion = sum(float(t["best_excursion_usd"]) for t in trades)
    assert sum(float(t["net_usd"]) for t in trades) / excursion == pytest.approx(figures["exit capture"], rel=1e-4)
    assert all(t["entry_time"] < t["exit_time"] and t["side"] in ("long", "short") for t in trades)


def test_blotter_as_parquet_and_pictures(workplace, foxhunt):
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("matplotlib")
    status, out, err = foxhunt(
        "eval", "runs/demo", "--device", "cpu", "--policy", "flow", "--blotter", "b.parquet", "--plots", "p"
    )
    assert status == 0, err
    table = parquet.read_table(workplace / "b.parquet")
    assert str(table.schema.field("entry_time").type) == "timestamp[ns]" and table.num_rows > 0
    for name in ("equity.png", "trades.png"):
        assert (workplace / "p" / name).read_bytes().startswith(b"\x89PNG")
