"""What each switch that takes a part away changes, and what it leaves as it was."""

from __future__ import annotations

import numpy as np
import pytest
from engines import differing, engine, iterate, iterate_eagerly, read, slot, state

from foxhunt_cli.diag.fields import live_slots
from foxhunt_cli.isv.table import number
from foxhunt_cli.train.engine import Engine

SMALL = ("encoder=mlp", "isv.p_min=0.05")
OFF = {
    "iqn": ("iqn=false",),
    "noisy": ("noisy=false",),
    "reference": ("reference_kl=false",),
    "distillation": ("distillation=off",),
    "own class": ("distillation=own",),
    "all": ("iqn=false", "noisy=false", "reference_kl=false", "distillation=off"),
    "executed action": ("iqn=false", "hindsight=close"),
}


def trained(*sets: str, iterations: int = 14) -> Engine:
    e = iterate(engine(*SMALL, *sets), iterations)
    assert e.done > e.prefill_iterations, "the critic has not learned yet"
    return e


def policy_tensors(e: Engine) -> dict[str, np.ndarray]:
    return {name: read(e, name) for name in ("w_pi", "b_pi", "w_v", "w_mlp1", "w_frd1")}


@pytest.mark.parametrize("choice", OFF)
def test_every_switch_trains_finite_and_the_same_twice(choice: str) -> None:
    recorded, eager = trained(*OFF[choice]), engine(*SMALL, *OFF[choice])
    assert differing(state(recorded), state(iterate_eagerly(eager, recorded.done))) == []
    isv = recorded.drain()
    assert np.isfinite(isv).all() and isv[-1, number("LOSS_Q")] > 0
    assert differing(state(recorded), state(trained())) != [], "the switch changes nothing"


def test_without_iqn_there_is_no_tensor_of_it_and_c51_is_the_value() -> None:
    e = trained("iqn=false")
    assert not [name for name in e.arrays if "iqn" in name]
    assert slot(e, "ENSEMBLE_ALPHA") == 1.0
    fields = {slot.field for slot in live_slots(e.kernels, e.slots)}
    assert "loss.iqn" not in fields and {"loss.q", "loss.frd", "signals.q_grad_norm_ema"} <= fields
    both = trained("isv.ensemble_alpha=1.0")  # the mix of both rounds once more
    for name in ("w_pi", "w_c51", "ensemble_q"):
        np.testing.assert_allclose(read(e, name), read(both, name), rtol=0, atol=1e-5)


def test_without_noise_sigmas_stay_and_composed_weights_are_the_mean_weights() -> None:
    quiet, noisy = trained("noisy=false"), trained()
    start = engine(*SMALL)
    for name in ("sw_c51", "sb_c51"):
        np.testing.assert_array_equal(read(quiet, name), read(start, name))
        assert (read(noisy, name) != read(start, name)).any()
    for name in {"c51_noise", "c51_target_noise"} & set(start.arrays):  # a fused update keeps them to itself
        assert not read(quiet, name).any() and read(noisy, name).any()
    assert (read(quiet, "w_c51") != read(start, "w_c51")).any()


def test_without_the_reference_its_weight_is_zero() -> None:
    off, zero = trained("reference_kl=false"), trained("isv.kl_ref_beta=0")
    assert [name for name in differing(state(off), state(zero)) if name != "isv_seed"] == []


def test_without_distillation_the_policy_does_not_follow_the_critic() -> None:
    """A critic that learns at another rate leaves the policy as it is; with distillation it does not."""
    slow = ("isv.lr_q=0.0001", "isv.iqn_lr=0.0001")
    off, off_slow = (policy_tensors(trained("distillation=off", "isv.lr_warmup_steps=1", *own)) for own in ((), slow))
    on, on_slow = (policy_tensors(trained("isv.lr_warmup_steps=1", *own)) for own in ((), slow))
    for name in ("w_pi", "b_pi", "w_mlp1", "w_frd1"):
        assert (off[name] == off_slow[name]).all(), name
    assert (on["w_pi"] != on_slow["w_pi"]).any()


def test_without_distillation_its_controllers_rest() -> None:
    e = engine("preset=seed", "rollout=1", "updates=1", "encoder=mlp", "distillation=off")
    assert "rl_distill_kl" not in e.kernels and "rl_controller_distill_lambda" not in e.kernels
    assert "rl_controller_gamma" in e.kernels and "rl_kl_reference_grad" in e.kernels
