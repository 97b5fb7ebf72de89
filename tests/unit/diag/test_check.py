"""Kill criteria, the states of controllers, comparison and following, on made-up runs with a known story."""

from __future__ import annotations

import copy
import fcntl
import json
from pathlib import Path

import pytest
from fake_run import records, write_run

from foxhunt_cli.diag.check import check, failed
from foxhunt_cli.diag.compare import differences, load
from foxhunt_cli.diag.compare import rows as figures
from foxhunt_cli.diag.controllers import states
from foxhunt_cli.diag.summary import summarize
from foxhunt_cli.diag.tail import is_being_written, last_records, merge, new_records
from foxhunt_cli.isv.table import by_name


@pytest.fixture(scope="module")
def rows():
    return list(records(400))


def changed(rows, change, start: int = 0):
    rows = copy.deepcopy(rows)
    for row in rows[start:]:
        change(row)
    return rows


def marks(directory: Path, rows) -> dict[str, str]:
    criteria = check(summarize(write_run(directory, rows)))
    assert failed(criteria) == ("bad" in [c.mark for c in criteria])
    return {criterion.topic: criterion.mark for criterion in criteria}


def test_a_good_run_passes(tmp_path, rows):
    found = marks(tmp_path, rows)
    assert set(found.values()) <= {"ok", "info"}
    assert found["hindsight"] == "info"


def no_trades(row):
    row["market"].update(trades_closed=0, wins=0)


def no_entropy(row):
    row["signals"]["entropy_observed_ema"] = 0.01


def only_hold(row):
    row["actions"]["share"] = [0.0, 0.0, 1.0, *[0.0] * 8]


def not_finite(row):
    row["loss"]["pi"], row["nonfinite"] = None, ["loss.pi"]


def explode(row):
    row["loss"]["total"] = 1e6


def stray_injection(row):
    row["hindsight"] = {"inject_count_step": 1.0, "forward_count_step": 0.0}
    row["market"]["trades_closed"] = 0


def never_injects(row):
    row["hindsight"] = {"inject_count_step": 0.0, "forward_count_step": 0.0}


def too_many(row):
    row["hindsight"] = {"inject_count_step": float(row["market"]["trades_closed"] > 0), "share": 0.4, "max_share": 0.25}


@pytest.mark.parametrize(
    ("change", "start", "criterion"),
    [
        (no_trades, 250, "trades"),
        (no_entropy, 250, "policy"),
        (only_hold, 250, "policy"),
        (not_finite, 399, "finite"),
        (explode, 310, "losses"),
        (stray_injection, 0, "hindsight"),
        (never_injects, 0, "hindsight"),
        (too_many, 0, "hindsight"),
    ],
)
def test_each_criterion_fails_alone(tmp_path, rows, change, start, criterion):
    found = marks(tmp_path, changed(rows, change, start))
    assert found[criterion] == "bad"


def test_two_runs_in_one_file_fail(tmp_path, rows):
    assert marks(tmp_path, [*rows[:50], *rows[:50]])["log"] == "bad"


@pytest.mark.parametrize(
    ("clip", "kl", "kernels", "status"),
    [
        (lambda i: 0.1 + 1e-4 * i, 0.01, ["rl_controller_ppo_clip"], "moves"),
        (lambda i: 0.3, 0.002, ["rl_controller_ppo_clip"], "pegged"),
        (lambda i: 0.3, 0.05, ["rl_controller_ppo_clip"], "stuck"),
        (lambda i: 0.2, 0.05, ["rl_controller_ppo_clip"], "dead"),
        (lambda i: 0.2, 0.0, ["rl_controller_ppo_clip"], "waiting"),
        (lambda i: 0.2, 0.05, ["rl_adam_step"], "fixed"),
        (lambda i: 0.2, 0.05, None, "fixed"),
    ],
)
def test_states_of_a_controller(tmp_path, rows, clip, kl, kernels, status):
    rows = copy.deepcopy(rows)
    for index, row in enumerate(rows):
        row["controllers"]["ppo_clip_eps"] = clip(index)
        row["signals"]["kl_pi_ema"] = kl
        row["isv_config"] = {"kl_target": 0.01}
    found = {s.slot.name: s for s in states(summarize(write_run(tmp_path, rows)), kernels)}
    assert found["PPO_CLIP_EPS"].status == status, found["PPO_CLIP_EPS"].text


@pytest.mark.parametrize(("share", "status"), [(1.0, "fixed"), (0.05, "dead")])
def test_a_rate_that_only_declines_stands_where_nothing_declines(tmp_path, rows, share, status):
    def standing(row):
        row["controllers"] |= {"iqn_lr": 0.001}
        row["isv_config"] = {"lr_final_share": share}

    summary = summarize(write_run(tmp_path, changed(rows, standing)))
    kernels = {by_name()["IQN_LR"].owner}
    assert {state.slot.name: state.status for state in states(summary, kernels)}["IQN_LR"] == status


@pytest.mark.parametrize(
    ("n", "status"), [(lambda i: max(4.0, 32.0 - i), "moves"), (lambda i: 4.0, "fixed"), (lambda i: 1.0, "pegged")]
)
def test_an_annealed_n_that_has_arrived_is_not_dead(tmp_path, rows, n, status):
    rows = copy.deepcopy(rows)
    for index, row in enumerate(rows):
        row["controllers"]["n_step"] = n(index)
    found = {s.slot.name: s for s in states(summarize(write_run(tmp_path, rows)), {by_name()["N_STEP"].owner})}
    assert found["N_STEP"].status == status, found["N_STEP"].text


def test_comparison_names_what_differs(tmp_path, rows):
    write_run(tmp_path / "a", rows)
    write_run(tmp_path / "b", changed(rows, no_trades))
    manifest = {"config": {"batch": 16, "seed": 3}, "isv_seeds": {"lr_pi": 0.1}, "kernel_hash": "x"}
    (tmp_path / "b" / "manifest.json").write_text(json.dumps(manifest))
    runs = load([tmp_path / "a", tmp_path / "b"])
    assert differences(runs) == {"seed": [None, 3], "isv.lr_pi": [None, 0.1], "kernels": [None, "x"]}
    found = {row.label: row.values for row in figures(runs)}
    assert found["steps"] == (6_400, 6_400)
    assert found["trades / 1,000 steps"][0] > 0 == found["trades / 1,000 steps"][1]


@pytest.mark.parametrize("count", [0, 1, 7, 1_000])
def test_the_last_records_are_the_last(tmp_path, rows, count):
    write_run(tmp_path, rows, tail=b'{"torn')
    assert last_records(tmp_path, count) == rows[-count:] * (count > 0)


def test_following_sees_whole_lines_and_ends_with_the_trainer(tmp_path, rows):
    run = write_run(tmp_path, rows[:2])
    with (run / "lock").open("w") as lock, (run / "run.jsonl").open("ab", buffering=0) as log:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert is_being_written(run)
        news = new_records(run, poll_s=0.0)
        assert next(news) == []
        line = json.dumps(rows[2]).encode() + b"\n"
        log.write(line[:100])
        assert next(news) == []
        log.write(line[100:])
        assert next(news) == [rows[2]]
    assert not is_being_written(run)
    assert list(news) == [[]]


def test_merged_records_add_up(rows):
    merged = merge(copy.deepcopy(rows[:5]))
    assert merged["step"] == rows[4]["step"]
    assert merged["market"]["trades_closed"] == sum(row["market"]["trades_closed"] for row in rows[:5])
