"""Faults that other trading and learning programs shipped, each with the tests of ours that would catch it.

An entry without a slash names an oracle (``suite.name``); the others are test functions. The test checks that they
exist, so a renamed one is noticed here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from foxhunt_cli.oracles.base import suites

TESTS = Path(__file__).parents[1]

KNOWN_FAULTS = {
    "the float32 root of a sum tree drifts from its leaves; empty rows are sampled (flashbax #52)": (
        "replay.replay_root_is_sum_of_leaves_after_a_million_updates",
        "replay.replay_paths_and_ranges_equal_a_full_rebuild",
        "replay.replay_never_draws_an_empty_or_zero_leaf",
        "replay.replay_rounded_sums_never_lead_to_an_empty_leaf",
    ),
    "alpha is applied twice to new items; an all-time maximum leaves new items without weight (pytorch/rl #2210)": (
        "replay.replay_priorities_and_duplicates",
        "replay.replay_push_windows_and_order",
    ),
    "C51 mass above or below 1 when a target lands on an atom (FastTD3 #29)": (
        "c51.c51_projection_conserves_mass",
        "c51.c51_projection_on_atoms_and_in_a_point_span",
        "c51.c51_projection_collects_at_the_ends",
    ),
    "beta anneals past 1 or never reaches it; duplicates of a batch are updated in random order": (
        "replay.replay_beta_is_one_at_the_end",
        "replay.replay_priorities_and_duplicates",
    ),
    "turning CUDA graphs on changes learning (pytorch/rl #3002)": (
        "rollout.recorded_iterations_equal_eager_ones",
        "pipeline/test_engine.py::test_recorded_equals_eager_bit_for_bit",
    ),
    "checkpoints lack optimiser state; a rate kept on the host overwrites the restored one (brax #655)": (
        "faults/test_kill_storm.py::test_a_run_killed_twenty_times_equals_the_undisturbed_one",
        "cli/test_train.py::test_killed_and_resumed_equals_uninterrupted",
    ),
    "a padded flat allocation with unpadded offsets loses tail weights (PufferLib PR 691)": (
        "faults/test_shipped_faults.py::test_every_tensor_has_a_place_of_its_own_and_pads_belong_to_nobody",
        "pipeline/test_engine.py::test_every_tensor_learns_and_the_pad_stays_zero",
    ),
    "the CPU version of a kernel is wrong where the CUDA one is right (PufferLib PR 598)": (
        "faults/test_shipped_faults.py::test_a_kernel_has_one_body_for_every_device",
    ),
    "NaN is masked to 0 or dropped from the log": (
        "faults/test_shipped_faults.py::test_numbers_that_are_not_finite_are_named_in_the_log_and_stop_the_run",
        "unit/diag/test_run_log.py::test_numbers_that_are_not_finite_become_null_and_are_named",
        "optim.a_non_finite_gradient_refuses_the_update",
        "c51.c51_projection_shows_nan",
        "features.features_are_bounded_and_keep_nan",
    ),
    "hindsight: a ring wrap crashes, or the wrong step is relabelled (SB3 #234, #847)": (
        "hindsight.hindsight_track_ring_wraps_at_512",
        "hindsight.hindsight_forward_closed_ring_wraps",
        "hindsight.hindsight_inject_peak_label",
        "hindsight.hindsight_inject_path_label_copies_the_moment",
        "hindsight.hindsight_forward_injects_after_lookahead",
        "replay.replay_ring_wraps",
    ),
    "IQN: the sign of tau - 1(delta < 0) is flipped": (
        "iqn.iqn_learns_the_quantiles_of_a_skewed_distribution",
        "iqn.iqn_loss_pulls_with_tau_from_below",
    ),
    "undefined levels become real prices, crash or fill (nautilus #4046)": (
        "unit/data/test_databento.py::test_undefined_level_stays_absent",
        "unit/data/test_databento.py::test_undefined_top_is_dropped",
        "features.features_of_a_book_with_one_level",
        "fills.fills_absent_levels_never_trade",
    ),
    "fixed-point prices are truncated (nautilus #3695, #3999)": (
        "unit/data/test_databento.py::test_fractional_ticks_are_exact",
        "unit/data/test_databento.py::test_off_grid_price_names_record_field_and_remedy",
        "unit/config/test_instruments.py::test_presets_have_the_exchange_figures",
        "unit/config/test_instruments.py::test_tick_size_is_read_exactly",
    ),
    "trade and fill actions are applied to the book (nautilus #4445)": (
        "unit/data/test_databento.py::test_trades_fills_and_none_never_change_the_book",
    ),
    "the book is crossed for 29 s in mid-session (captures of 2025-05-09)": (
        "unit/data/test_clean.py::test_a_book_crossed_for_long_is_masked_not_asserted",
        "unit/data/test_clean.py::test_each_reason_is_counted_once",
    ),
    "a stop fills at its trigger although the market had gapped beyond (nautilus #2397)": (
        "fills.fills_a_stop_fills_at_the_book_not_at_its_trigger",
    ),
    "a delayed order fills across a session gap at a stale price (nautilus #5054)": (
        "fills.fills_orders_die_with_the_episode",
        "fills.fills_episode_end_closes_at_the_last_book",
        "unit/market/test_prepare.py::test_every_episode_stays_in_its_session",
    ),
    "one displayed quantity is consumed twice (nautilus #2564)": (
        "fills.fills_partial_level_walk",
        "fills.fills_a_row_with_an_order_under_way_holds",
        "conservation.conservation_flip_is_close_then_open",
        "conservation.conservation_reference_simulator_all_overrides",
    ),
    "mapping symbols takes twenty minutes (databento-python #115)": (
        "unit/data/test_databento.py::test_several_instruments_ask_for_a_choice",
        "unit/data/test_databento.py::test_an_absent_instrument_id_is_an_error",
    ),
    "the continuous contract jumps at a roll (Lean #7868)": (
        "unit/data/test_databento.py::test_a_roll_of_the_contract_is_a_session_break",
    ),
    "Sharpe is wrongly annualised, flat days are dropped, no trade gives NaN": (
        "unit/market/test_metrics.py::test_annualised_ratios_are_those_of_empyrical",
        "unit/market/test_metrics.py::test_minutes_keep_flat_ones_and_add_rows_up",
        "unit/market/test_metrics.py::test_no_trade_is_no_number_and_no_error",
        "unit/market/test_metrics.py::test_no_ratio_without_spread",
    ),
    "a scaler or sigma is fitted on held-out data": (
        "faults/test_shipped_faults.py::test_nothing_of_the_held_out_range_reaches_training",
        "unit/market/test_prepare.py::test_sigmas_are_fitted_to_the_data_given_and_no_other",
    ),
}


@cache
def functions(path: Path) -> frozenset[str]:
    """Names of the functions that a test module defines."""
    return frozenset(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("fault", KNOWN_FAULTS)
def test_every_known_fault_has_tests_that_exist(fault: str) -> None:
    oracles = {f"{suite}.{case.name}" for suite, cases in suites().items() for case in cases}
    assert KNOWN_FAULTS[fault]
    for name in KNOWN_FAULTS[fault]:
        if "::" not in name:
            assert name in oracles, f"no such oracle: {name}"
            continue
        file, _, function = name.partition("::")
        assert (TESTS / file).exists() and function in functions(TESTS / file), f"no such test: {name}"


def test_the_table_has_every_row_of_the_specification() -> None:
    assert len(KNOWN_FAULTS) == 22
