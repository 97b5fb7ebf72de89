"""``foxhunt smoke``: every gate holds here, and a gate that does not is seen."""

from __future__ import annotations

import json

import pytest

from foxhunt_cli.cli.app import main
from foxhunt_cli.device.select import select
from foxhunt_cli.train import smoke


def _run(capsys, *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["smoke", "--device", "cpu", *args])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_all_gates_hold_on_the_cpu(capsys) -> None:
    status, out, err = _run(capsys, "--json")
    document = json.loads(out)
    assert [gate for gate in document["gates"] if not gate["passed"]] == []
    assert status == 0, err
    names = {gate["name"] for gate in document["gates"]}
    assert {"G1 ISV bootstrap", "G3 controllers emit", "G4 target soft update", "G6 replay wiring"} <= names
    assert {gate["run"].split(",")[0] for gate in document["gates"]} == {"foxhunt", "seed", "replay alone"}


def test_a_gate_that_does_not_hold_is_exit_status_1(capsys, monkeypatch) -> None:
    gates = [smoke.Gate("seed, B = 1", "G4 target soft update", False, "error 1"), smoke.Gate("a", "b", True, "c")]
    monkeypatch.setattr(smoke, "smoke", lambda *_: iter(gates))
    status, out, err = _run(capsys)
    assert status == 1
    assert "FAIL" in out and "1 met, 1 not met" in out
    assert "G4 target soft update: error 1" in err


def test_gates_notice_a_broken_run() -> None:
    device = select("cpu").device
    config = smoke._config("seed", 4, "cpu")
    market = smoke.load_market_data(None, config.data, config.synthetic)
    data = smoke.prepare_training(device, market, config)
    engine = smoke.build_engine(device, config, data)
    isv = smoke.start_isv(config, data)
    run = smoke._Run("seed", config, data, engine, isv[None].repeat(3, axis=0))
    assert smoke._bootstrap(run).passed
    assert not smoke._controllers_emit(run).passed, "no controller has moved"
    assert not smoke._replay_wiring(run).passed, "nothing was pushed"
    assert not smoke._hindsight_fires(run).passed
    assert smoke._finite(run).passed
    run.isv[1, smoke.number("LOSS_V")] = float("nan")
    assert not smoke._finite(run).passed
    before = smoke._parameters(run)
    run.isv[-1, smoke.number("TARGET_TAU")] = 0.5
    for _ in range(engine.prefill_iterations + 1):
        engine.iterate()
    assert not smoke._soft_update(run, before).passed, "tau 0.5 was never used"
    device.write(engine.arrays["isv"], isv * 1.01)
    assert not smoke._bootstrap(run).passed
