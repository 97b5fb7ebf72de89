"""Faults that other programs shipped and that no test of a single part shows: here, on the whole program."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from runs import lines, one_error, train

from foxhunt_cli.config.run import RunConfig
from foxhunt_cli.data.fhx import write_fhx
from foxhunt_cli.data.market_data import MarketData
from foxhunt_cli.data.options import DataOptions
from foxhunt_cli.data.source import load_market_data
from foxhunt_cli.data.synthetic import SyntheticOptions
from foxhunt_cli.kernels.registry import cuda_root
from foxhunt_cli.nets.params import CHUNK, lay_out
from foxhunt_cli.pipeline import critic, learn
from foxhunt_cli.train import run_dir
from foxhunt_cli.train.shapes import shape_of
from foxhunt_cli.train.split import split

SHAPES = {
    "mlp": {"encoder": "mlp"},
    "full": {"encoder": "full"},
    "no critic": {"encoder": "mlp", "updates": 0},
    "odd sizes": {"encoder": "mlp", "lot_limit": 7, "batch": 3, "rollout": 5},
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_tensor_has_a_place_of_its_own_and_pads_belong_to_nobody(name: str) -> None:
    config = RunConfig(**SHAPES[name])
    shape = shape_of(config)
    classes = 2 * (config.lot_limit or 4) + 1
    dims = {"B": config.batch, "T": config.rollout, "K": learn.window(config.encoder), "P": classes}
    tensors = (*learn.parameters(shape), *(critic.parameters() if shape.critic else ()))
    layout = lay_out(tensors, dims)
    owner = np.full(layout.size, -1)
    for number, tensor in enumerate(layout.tensors):
        view = layout.view(owner, tensor.name)
        assert (view == -1).all(), f"{tensor.name} overlaps another tensor"
        assert layout.offsets[tensor.name][0] % CHUNK == 0
        view[...] = number
    for number, tensor in enumerate(layout.tensors):
        place = np.flatnonzero(owner == number)
        assert place.size == np.prod(layout.offsets[tensor.name][1]) and place.size == place[-1] - place[0] + 1
    assert (owner == -1).sum() < CHUNK * len(layout.tensors), "pads are shorter than a chunk"


# Headers of small functions that are written once for each device, because one form is slow or absent on the other.
TWO_FORMS = {"eight.cuh", "lanes.cuh", "iqn.cuh", "block_product.cuh", "reduce.cuh"}


def test_a_kernel_has_one_body_for_every_device() -> None:
    """Kernels of CUDA alone may ask where they run, and the headers named above; precision is no device."""
    asks = re.compile(
        r"#\s*(?:if|ifdef|ifndef|elif)\b.*(__CUDA|__NVCC__|__GNUC__|__clang__|FOXHUNT_SANITIZE|_CPU|__x86)"
    )
    for path in sorted(cuda_root().rglob("*.cu*")):
        if path.parent.name != "cuda_only" and path.name not in TWO_FORMS:
            assert not asks.search(path.read_text()), f"{path.name} has another body on another device"


def forge(folder: Path, **values: float) -> None:
    """Overwrite whole arrays of a checkpoint; its digests are made anew."""
    arrays = safetensors.numpy.load((folder / "state.safetensors").read_bytes())
    for name, value in values.items():
        arrays[name][...] = value
    payload = safetensors.numpy.save(arrays)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["sha256"] = hashlib.sha256(payload).hexdigest()
    manifest["self"] = run_dir.json_digest(manifest)
    (folder / "state.safetensors").write_bytes(payload)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_numbers_that_are_not_finite_are_named_in_the_log_and_stop_the_run(tmp_path: Path) -> None:
    assert train("--steps", "64", name="nan", cwd=tmp_path).returncode == 0
    run = tmp_path / "runs/nan"
    forge(run / "checkpoints/step-000000064", params=float("nan"))
    done = train("--resume", "runs/nan", "--steps", "2048", cwd=tmp_path)
    one_error(done, 4, "non-finite", "diag summarize")
    assert json.loads((run / "manifest.json").read_text())["status"] == "numeric fault"
    bad = [record for record in lines(run) if record["step"] > 64]
    assert bad and bad[-1]["step"] < 2048
    assert any(name.startswith("loss.") for name in bad[-1]["nonfinite"]), bad[-1]["nonfinite"]
    assert (run / "checkpoints/step-000000064").exists() and len(list((run / "checkpoints").iterdir())) == 1


def with_other_end(market: MarketData, first: int) -> MarketData:
    """The same data but for the prices from record ``first`` on."""
    records = market.records.copy()
    for name in ("bid_px", "ask_px", "prev_mid"):
        records[name][first:] *= np.array(1.5, records[name].dtype) if records[name].dtype.kind == "f" else 2
    return MarketData(**{**market.__dict__, "records": records, "digest": "of the other end"})


def test_nothing_of_the_held_out_range_reaches_training(tmp_path: Path) -> None:
    """Sigmas, features, labels and episodes: a run on data whose last fifth differs logs the same."""
    market = load_market_data(None, DataOptions(), SyntheticOptions(snapshots=12_000))
    cut = split(market, 0.2)
    first = len(market.records) - len(cut.held_out.records)
    assert len(cut.train.records) + cut.purge == first
    write_fhx(tmp_path / "a.fhx", market)
    write_fhx(tmp_path / "b.fhx", with_other_end(market, first))
    for name in "ab":
        options = ("--data", f"{name}.fhx", "--set", "holdout=0.2", "--steps", "64", "--eval-every", "0")
        done = train(*options, name=name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert lines(tmp_path / "runs/a") == lines(tmp_path / "runs/b")
    figures = [json.loads((tmp_path / f"runs/{n}/eval/final.json").read_text())["policies"] for n in "ab"]
    assert figures[0] != figures[1], "the two ends do differ"
