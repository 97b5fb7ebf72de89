"""The CfC cell's list: what the kernel of a whole sequence takes the place of, and that its launches fit."""

import pytest

from foxhunt_cli.config.dims import evaluate
from foxhunt_cli.kernels.registry import gpu_kernels, kernel
from foxhunt_cli.nets import cfc
from foxhunt_cli.pipeline.build import names_of
from foxhunt_cli.pipeline.stage import Fused, Stage, chosen

W = 48
SCRATCH = cfc.Cell("encoder_grad_x", "encoder_grad_out", "encoder_grad_proj", "encoder_grad_bc", "target_h", keep=False)
SEQUENCE = {n: c for n, c in gpu_kernels().items() if n.startswith("cfc_sequence")}
SHARED = 99 * 1024  # bytes a block may have on every GPU with TF32 products since 8.6


def _forward(cell, prefix=""):
    return cfc.forward(cell, "m2_out", "gap", W, "T", "W*B", {}, prefix)


@pytest.mark.parametrize("steps", [_forward(cfc.TRAINED), _forward(SCRATCH, "target_"), cfc.backward(W)])
def test_one_launch_stands_for_the_whole_recurrence(steps):
    (fused,) = (step for step in steps if isinstance(step, Fused))
    assert fused.tf32 and len(fused.launches) == 1
    assert len(chosen(steps, "tf32")) == len(steps) and len(chosen(steps, "float32")) > 3 * W
    fuses = set(kernel(fused.launches[0].kernel).fuses)
    assert fuses == {step.kernel for step in fused.steps if isinstance(step, Stage)}


@pytest.mark.parametrize("steps", [_forward(cfc.TRAINED), cfc.backward(W)])
def test_what_stays_has_the_same_names(steps):
    (fused,) = (step for step in steps if isinstance(step, Fused))
    assert names_of(fused.launches) == names_of(fused.steps) - {"cfc_recurrent"}


def test_a_pass_that_keeps_nothing_writes_nothing_else():
    (fused,) = (step for step in _forward(SCRATCH, "target_") if isinstance(step, Fused))
    stage = fused.launches[0]
    assert {stage.remap.get(p, p) for p in kernel(stage.kernel).writes} == {"target_h"}
    assert {n for n in names_of([stage]) if n.startswith(("w_", "b_"))} == set()


@pytest.mark.parametrize("name", sorted(SEQUENCE))
def test_every_number_of_rows_has_blocks_that_cover_it_and_fit(name):
    launch = SEQUENCE[name].launch
    for B in (*range(1, 1200), 2112, 2113, 4096, 8448, 8449, 65_536, 1_000_003):
        share = {name: evaluate(rule, {"B": B}) for name, rule in cfc._SHARES.items()}
        blocks, own = evaluate(launch.items, share | {"B": B}), share["rows"] * share["tiles"]
        assert share["rows"] in (4, 8) and (blocks - 1) * own < B <= blocks * own
        assert evaluate(launch.shared, share) <= SHARED
        assert blocks <= 132 or share["tiles"] == 8
