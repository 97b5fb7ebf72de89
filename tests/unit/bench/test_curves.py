"""When a curve holds a threshold, that a file of curves is continued, and that a picture is one."""

from __future__ import annotations

from pathlib import Path

import pytest

from foxhunt_cli.bench import hindsight, learn
from foxhunt_cli.bench.curves import Curve, Grower, holds, middle
from foxhunt_cli.cli.console import Terminal
from foxhunt_cli.config.load import load_config
from foxhunt_cli.market.evaluate import AGENT, CRITIC

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
    assert first.curves[0].steps == [16, 32, 48] and first.curves[0].seconds[-1] > 0
    assert {AGENT, CRITIC} == set(first.curves[0].policies)

    second = Grower(16, file, quiet)
    monkeypatch.setattr(second, "_train", lambda *_: pytest.fail("trained again"))
    again = hindsight.run(configure, second, kinds=["none8", "path"], seeds=1, threshold=-1e9)
    assert [r["steps"] for r in again["rows"]] == [r["steps"] for r in found["rows"]]


def test_an_unknown_kind_is_refused_before_any_training() -> None:
    with pytest.raises(ValueError, match="none3.*got 'all'"):
        hindsight.run(configure, Grower(16, None, Terminal(quiet=True)), kinds=["all"], seeds=1)


def test_presets_and_encoders_stand_side_by_side() -> None:
    grower = Grower(24, None, Terminal(quiet=True))
    base = ["device=cpu", "batch=4", "steps=48", "synthetic.snapshots=20000"]
    found = learn.run(
        lambda own: load_config(sets=[*base, *own]), grower,
        markets=["noise"], presets=["foxhunt", "seed"], encoders=["mlp"], seeds=1,
    )  # fmt: skip
    assert [r["preset"] for r in found["rows"]] == ["foxhunt", "seed"]
    assert all(c.steps and not c.fault for c in grower.curves)


def test_a_picture_is_a_png() -> None:
    pytest.importorskip("matplotlib")
    policies = {AGENT: {"net USD / 1,000 steps": [1.0, 2.0], "trades": [1.0, 2.0]}}
    curves = [
        Curve(str(seed), {"market": "wavy", "preset": preset, "seed": seed}, 1.5, [8, 16], [1, 2], [0.1, 0.2], policies)
        for preset in ("foxhunt", "seed")
        for seed in (0, 1)
    ]
    assert learn.picture(curves, "market", ("preset",)).startswith(b"\x89PNG")
