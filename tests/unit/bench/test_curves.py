"""When a curve holds a threshold, that a file of curves is continued, and that a picture is one."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from foxhunt_cli.bench import hindsight, learn
from foxhunt_cli.bench.curves import NET, RULES, Curve, Grower, holds, middle
from foxhunt_cli.bench.markets import DRIFT, fresh_markets
from foxhunt_cli.bench.setup import open_market
from foxhunt_cli.cli.console import Terminal
from foxhunt_cli.config.load import load_config
from foxhunt_cli.data.synthetic import known_drift
from foxhunt_cli.market.evaluate import AGENT, BOUND, CRITIC

SMALL = ["device=cpu", "batch=4", "rollout=8", "steps=48", "encoder=mlp", "synthetic.snapshots=20000", "updates=1"]


def configure(own):
    return load_config(sets=[*SMALL, *own])


def test_a_threshold_is_held_at_the_first_of_three_in_a_row() -> None:
    assert holds([0, 5, 5, 0, 5, 5, 6, 0], 5) == 4
    assert holds([0, 5, 5], 5) is None
    assert holds([5, 5, 5], 5) == 0
    assert holds([], 5) is None


def test_the_middle_ignores_what_is_no_number() -> None:
    assert middle([3.0, float("nan"), 1.0]) == 2.0
    assert middle([]) != middle([])


def test_hindsight_compares_and_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, quiet = tmp_path / "curves.json", Terminal(quiet=True)
    first = Grower(16, file, quiet)
    found = hindsight.run(configure, first, kinds=["none8", "path"], seeds=1, threshold=-1e9)
    agent = next(r for r in found["rows"] if r["policy"] == AGENT and r["hindsight"] == "path")
    assert agent["held"] == agent["of"] == 1 and agent["steps"] == 16 and agent["final"] == agent["final"]
    assert agent["x none8"] == {"median": 1.0, "low": 1.0, "high": 1.0, "unheld": 0}
    assert first.curves[0].steps == [16, 32, 48] and first.curves[0].seconds[-1] > 0
    assert {AGENT, CRITIC} == set(first.curves[0].policies) and len(first.curves[0].bias) == 3
    assert {"own"} == set(first.curves[0].finals) and first.curves[0].bound > first.curves[0].flow

    second = Grower(16, file, quiet)
    monkeypatch.setattr(second, "_train", lambda *_: pytest.fail("trained again"))
    again = hindsight.run(configure, second, kinds=["none8", "path"], seeds=1, threshold=-1e9)
    assert [r["steps"] for r in again["rows"]] == [r["steps"] for r in found["rows"]]


def test_hindsight_is_judged_on_fresh_markets_too_and_again_from_the_file(tmp_path: Path) -> None:
    file, quiet = tmp_path / "curves.json", Terminal(quiet=True)
    choice = {"kinds": ["none-annealed", "path-annealed"], "seeds": 1, "threshold": 1e9}

    def harder(own):
        return configure(["synthetic.edge=0.6", *own])

    made, read = (hindsight.run(harder, Grower(48, file, quiet, held_out=2), **choice) for _ in range(2))
    assert len(made["judgements"]) == 2 * 2 * 2 and {j["policy"] for j in made["judgements"]} == {AGENT, CRITIC}
    for row in made["rows"]:
        own = [j for j in made["judgements"] if all(j[name] == row[name] for name in ("policy", "hindsight"))]
        assert [j["held out"] for j in own] == ["market 1000", "market 1001"]
        assert row["held out"] == np.mean([j["net"] for j in own]) and row["worst"] == min(j["net"] for j in own)
        assert row["judgements"] == 2
    assert [r["held out"] for r in read["rows"]] == [r["held out"] for r in made["rows"]]
    assert not hindsight.run(harder, Grower(48, None, quiet), **choice | {"kinds": ["path"]})["judgements"]


class Told:
    """A grower that trains nothing: it keeps what it was asked for."""

    def __init__(self, flow: float) -> None:
        self.flow, self.configs = flow, []

    def grow(self, config, labels) -> Curve:
        self.configs.append(config)
        return Curve(str(len(self.configs)), labels, [8], [1], [0.1], [0.0], {AGENT: {NET: [1.0]}}, flow=self.flow)


@pytest.mark.parametrize(("sizes", "steps"), [((4, 4), 1000), ((16, 4), 4000), ((4, 16), 250), ((8, 3), 2667)])
def test_annealed_kinds_fall_over_a_thousand_updates(sizes: tuple[int, int], steps: int) -> None:
    told = Told(1.0)
    hindsight.run(
        lambda own: configure([f"rollout={sizes[0]}", f"updates={sizes[1]}", *own]), told,
        kinds=["path-annealed", "path"], seeds=1,
    )  # fmt: skip
    isv = told.configs[0].isv
    assert (isv["n_step_start"], isv["n_step"], isv["n_step_anneal_steps"]) == (32, 4, steps)
    assert "n_step_anneal_steps" not in told.configs[1].isv


def test_no_multiple_of_a_loss_is_a_threshold() -> None:
    told = Told(-5.0)
    with pytest.raises(ValueError, match="flow rule earns -5.0 USD .* give one in USD with --threshold"):
        hindsight.run(configure, told, kinds=["path"], seeds=3)
    assert len(told.configs) == 1, "it is said before all of them are trained"
    assert hindsight.run(configure, told, kinds=["path"], seeds=1, threshold=1.0)["threshold"] == 1.0


def test_fresh_markets_are_as_hard_as_the_training_market() -> None:
    one, harder = (configure(["synthetic.preset=wavy", f"synthetic.edge={edge}"]).synthetic for edge in (1.0, 0.6))
    fresh = fresh_markets(configure(["synthetic.edge=0.6"]), 1)["market 1000"].market
    options = {"seed": 1000, "snapshots": len(fresh)}
    drifts = [known_drift(kind.model_copy(update=options)) for kind in (one, harder)]
    np.testing.assert_allclose(drifts[1], 0.6 * drifts[0], rtol=1e-12)
    same = open_market(configure([f"synthetic.{name}={value}" for name, value in options.items()]))
    assert fresh.digest != same.digest, "the edge is not that of the training market"


def test_judgements_from_a_file_are_those_that_were_made(tmp_path: Path) -> None:
    """An agent without a trade has figures that are no numbers."""
    choice = {"markets": ["noise"], "presets": ["foxhunt"], "encoders": ["mlp"], "seeds": 1}
    file, quiet = tmp_path / "curves.json", Terminal(quiet=True)
    made, read = (learn.run(configure, Grower(48, file, quiet, held_out=1), **choice) for _ in range(2))
    for was, now in zip(made["judgements"] + made["rows"], read["judgements"] + read["rows"], strict=True):
        assert was.keys() == now.keys()
        assert all(now[name] == value or (value != value and now[name] != now[name]) for name, value in was.items())


def test_an_unknown_kind_is_refused_before_any_training() -> None:
    with pytest.raises(ValueError, match="none3.*got 'all'"):
        hindsight.run(configure, Grower(16, None, Terminal(quiet=True)), kinds=["all"], seeds=1)


def test_factors_go_seed_by_seed_and_count_what_never_held() -> None:
    base = {"steps_by_seed": [400, None, 300, 200]}
    own = {"steps_by_seed": [100, 100, 100, None]}
    assert hindsight._factor(base, own) == {"median": 3.5, "low": 3.0, "high": 4.0, "unheld": 1}
    nothing = hindsight._factor(None, own)
    assert nothing["median"] != nothing["median"] and nothing["unheld"] == 0


def test_without_the_surrogate_other_runs_are_made() -> None:
    grower = Grower(16, None, Terminal(quiet=True))
    found = hindsight.run(configure, grower, kinds=["path"], seeds=1, threshold=1e9, surrogate=False)
    assert not found["surrogate"] and found["rows"][0]["held"] == 0
    assert hindsight.WITHOUT_SURROGATE[0] == "isv.loss_lambda_pi=0"


def test_presets_and_encoders_stand_side_by_side() -> None:
    grower = Grower(24, None, Terminal(quiet=True))
    base = ["device=cpu", "batch=4", "steps=48", "synthetic.snapshots=20000"]
    found = learn.run(
        lambda own: load_config(sets=[*base, *own]), grower,
        markets=["noise"], presets=["foxhunt", "seed"], encoders=["mlp"], seeds=1,
    )  # fmt: skip
    assert [(r["preset"], r["policy"]) for r in found["rows"]] == [
        ("foxhunt", "pi"), ("foxhunt", "q"), ("seed", "pi"), ("seed", "q")
    ]  # fmt: skip
    assert all(c.steps and not c.fault for c in grower.curves)


def test_agents_of_several_training_markets_are_judged_on_fresh_ones() -> None:
    grower = Grower(48, None, Terminal(quiet=True), held_out=2)
    found = learn.run(
        configure, grower, markets=["wavy"], presets=["foxhunt"], encoders=["mlp"], seeds=1, training_markets=2
    )
    assert len(grower.curves) == 2 and grower.curves[0].flow != grower.curves[1].flow
    judged = [(j["seed"], j["held out"]) for j in found["judgements"] if j["policy"] == "pi"]
    assert judged == [(seed, f"market {market}") for seed in (0, 1) for market in (1000, 1001)]
    assert all(j["of drift"] == j["of drift"] and j["rule"] in RULES for j in found["judgements"])


def test_fresh_markets_are_no_training_market_and_know_their_drift() -> None:
    config = configure(["holdout=0.5"])
    fresh = fresh_markets(config, 2)
    digests = {judged.market.digest for judged in fresh.values()} | {open_market(config).digest}
    assert len(digests) == 3 and all(len(judged.market) == 10_000 for judged in fresh.values())
    assert all(set(np.unique(judged.sides[DRIFT])) == {-1, 0, 1} for judged in fresh.values())
    assert not fresh_markets(configure(["synthetic.preset=noise"]), 1)["market 1000"].sides


def figures(net: float, low: float, high: float) -> dict[str, float]:
    names = ("exit capture", "win rate", "trades", "gross USD / 1,000 steps")
    intervals = {learn.LOW: low, learn.HIGH: high, "gross 95 % interval, low": low, "gross 95 % interval, high": high}
    return {NET: net, **intervals, **dict.fromkeys(names, 0.5)}


def test_a_judgement_by_hand() -> None:
    finals = {
        "m": {
            AGENT: figures(600.0, 450.0, 700.0),
            "hold": figures(0.0, 0.0, 0.0),
            "flow": figures(300.0, 200.0, 400.0),
            "moving average": figures(-50.0, -90.0, 0.0),
            DRIFT: figures(800.0, 700.0, 900.0),
            BOUND: figures(2000.0, 1900.0, 2100.0),
        }
    }
    curve = Curve("k", {"market": "wavy"}, finals=finals)
    found = learn.judgement(curve, "m", AGENT)
    assert (found["rule"], found["x rule"], found["clear"]) == ("flow", 2.0, True)
    assert (found["of drift"], found["of the bound"]) == (0.75, 0.3)
    finals["m"]["flow"] = figures(300.0, 200.0, 460.0)
    assert not learn.judgement(curve, "m", AGENT)["clear"]
    del finals["m"]["flow"]
    assert learn.judgement(curve, "m", AGENT)["rule"] == "hold"


def test_a_picture_is_a_png_with_unknown_figures() -> None:
    pytest.importorskip("matplotlib")
    nan = float("nan")
    policies = {
        AGENT: {NET: [1.0, 2.0], "exit capture": [nan, 0.5], "win rate": [nan, nan]},
        CRITIC: {NET: [0.0, 2.0], "exit capture": [0.1, 0.5], "win rate": [0.2, nan]},
    }
    curves = [
        Curve(
            str(seed), {"market": "wavy", "preset": preset, "seed": seed}, [8, 16], [1, 2], [0.1, 0.2], [0.0, 0.0],
            policies, flow=1.5, bound=4.0,
        )
        for preset in ("foxhunt", "seed")
        for seed in (0, 1)
    ]  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert learn.picture(curves, "market", ("preset",)).startswith(b"\x89PNG")
