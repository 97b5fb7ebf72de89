"""``foxhunt bench peers``: what it prints, what it refuses, and that what it times is a whole iteration that learns."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from foxhunt_cli.bench import peers
from foxhunt_cli.bench.compile_ahead import compile_ahead
from foxhunt_cli.bench.setup import open_device, open_engine, open_market
from foxhunt_cli.cli.console import Terminal
from foxhunt_cli.config.load import ConfigError, load_config
from foxhunt_cli.diag.extras import MissingExtra

SMALL = ("device=cpu", "cpu_threads=1", "batch=4", "replay_batch=16", "updates=2", "synthetic.snapshots=20000")
FORMS = {"foxhunt": ("rollout=4",), "seed": ("preset=seed", "updates=2")}
FILL = 3  # iterations that only fill the replay: beyond the longest window
NEEDED = "the peer of bench peers needs torch (foxhunt[dev])"


def command(*args: str, before: str = "pass") -> subprocess.CompletedProcess:
    code = f"import sys; {before}; from foxhunt_cli.cli.app import main; sys.argv[0] = 'foxhunt'; main()"
    line = [sys.executable, "-c", code, "bench", "peers", *args]
    return subprocess.run(line, capture_output=True, text=True, timeout=600)


def small(form: str):
    return load_config(sets=[*SMALL, *FORMS[form]])


def made(form: str, compiled):
    torch = pytest.importorskip("torch", reason=NEEDED)
    from foxhunt_cli.bench.peer_path import PathIteration
    from foxhunt_cli.bench.peer_step import StepIteration

    torch.set_num_threads(1)
    config = small(form)
    engine = open_engine(open_device(config), config, open_market(config), Terminal(quiet=True))
    kind = StepIteration if form == "seed" else PathIteration
    isv = engine.device.download(engine.arrays["isv"])
    torch.manual_seed(5)
    peer = kind(engine, isv, config.updates, torch.device("cpu"), compiled)
    for _ in range(FILL):
        peer.iterate(critic=False)
    return torch, peer


@pytest.mark.parametrize("form", sorted(FORMS))
def test_an_iteration_plays_stores_and_learns(form: str) -> None:
    torch, peer = made(form, lambda function: function)
    start = {name: w.detach().clone() for name, w in {**peer.policy, **peer.critic}.items()}
    target = {name: w.clone() for name, w in peer.target.items() if name in peer.critic}
    for _ in range(6):
        peer.iterate()
    assert torch.isfinite(peer.losses).all() and bool((peer.losses[[1, 3, 5, 6, 8, 9]] > 0).all())
    still = [n for n, w in {**peer.policy, **peer.critic}.items() if torch.equal(w.detach(), start[n])]
    assert still == (["w_context"] if form == "seed" else [])
    assert not any(torch.equal(peer.target[n], w) for n, w in target.items())
    s = peer.sizes
    waiting = (int(peer.rules.n_step) - (form == "seed")) * s.B
    assert int((peer.replay["priority"] > 0).sum()) == (6 + FILL) * s.T * s.B - waiting
    assert bool((peer.cursor - peer.start == (6 + FILL) * s.T).all())


def test_targets_follow_the_encoder_as_often_as_there_are_updates() -> None:
    torch, peer = made("foxhunt", lambda function: function)
    name, tau = "w_m1_in", peer.rules.target_tau
    followed, weight = peer.target[name].clone(), peer.policy[name].detach() + 1.0
    peer.policy[name].data.copy_(weight)
    peer._follow()
    for _ in range(peer.sizes.U):
        followed += tau * (weight - followed)
    torch.testing.assert_close(peer.target[name], followed)


def test_pieces_traced_for_the_compiler_compute_the_same() -> None:
    """torch.compile without its code generator, which takes minutes: same random numbers, same losses."""
    torch, eager = made("foxhunt", lambda function: function)
    for _ in range(3):
        eager.iterate()
    _, traced = made("foxhunt", lambda function: torch.compile(function, dynamic=False, backend="eager"))
    for _ in range(3):
        traced.iterate()
    torch.compiler.reset()
    torch.testing.assert_close(traced.losses, eager.losses, rtol=1e-4, atol=1e-5)
    assert torch.equal(traced.account.lots, eager.account.lots)


def test_adam_is_torchs_adam_with_the_clip_and_the_followers() -> None:
    torch = pytest.importorskip("torch", reason=NEEDED)
    from foxhunt_cli.bench.peer_adam import Adam, flatten
    from foxhunt_cli.bench.peer_rules import Rules
    from foxhunt_cli.isv.seeds import seed_values

    rules = Rules.of(seed_values({"grad_clip_norm": 0.5}))
    torch.manual_seed(1)
    ours = {name: torch.randn(*shape) for name, shape in {"a": (3, 4), "b": (5,), "c": (2,)}.items()}
    theirs = {name: w.clone().requires_grad_() for name, w in ours.items()}
    (flat, targets), followed = flatten(ours), {name: w.clone() for name, w in ours.items()}
    rates = {"a": 1e-2, "b": 1e-2, "c": 3e-3}
    adam = Adam(ours, rates, rules, lambda function: function, clipped=2, targets=flat)
    groups = [{"params": [theirs[name]], "lr": rate} for name, rate in rates.items()]
    reference = torch.optim.Adam(groups, eps=rules.adam_eps, betas=(rules.adam_beta1, rules.adam_beta2))
    for _ in range(5):
        grads = [torch.randn_like(w) for w in ours.values()]
        for w, g in zip(theirs.values(), grads, strict=True):
            w.grad = g.clone()
        torch.nn.utils.clip_grad_norm_([theirs["a"], theirs["b"]], 0.5)
        reference.step()
        adam.apply(grads)
        now = {name: w.detach() for name, w in adam.weights.items()}
        followed = {name: w + rules.target_tau * (now[name] - w) for name, w in followed.items()}
    for name, w in now.items():
        torch.testing.assert_close(w, theirs[name].detach(), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(targets[name], followed[name])


def test_rows_stand_side_by_side_and_say_what_is_left_out() -> None:
    pytest.importorskip("torch", reason=NEEDED)
    done = command(
        "--device", "cpu", "-b", "2,3", "--rollout", "4", "--variants", "eager", "--seconds", "0.2", "--repeats", "2",
        *(word for text in SMALL[1:] if not text.startswith("batch") for word in ("--set", text)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    sizes = [line.split("  ")[0] for line in lines if line.startswith(("2, 4", "3, 4"))]
    assert sizes == ["2, 4, 16"] * 2 + ["3, 4, 16"] * 2
    assert sum("torch, eager" in line for line in lines) == 2 and "leaves out: trailing" in lines[-1]


def test_each_has_a_row_and_a_variant_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason=NEEDED)

    def no_compiler(*_: object, **__: object) -> None:
        raise RuntimeError("no working C++ compiler\nand more")

    monkeypatch.setattr(torch, "compile", no_compiler)
    found = peers.run([small("seed")], seconds=0.2, repeats=2, console=Terminal(quiet=True))
    ours, eager = found["rows"]
    assert (ours["iteration"], eager["iteration"]) == ("foxhunt", "torch, eager")
    assert ours["ratio"] == 1.0 and eager["ratio"] > 0 and ours["ms_low"] <= ours["ms"] <= ours["ms_high"]
    assert found["missing"] == {"torch, compiled, B = 4": "no working C++ compiler"}


def test_without_torch_one_line_and_status_2() -> None:
    done = command("--device", "cpu", before="sys.modules['torch'] = None")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "error: bench peers needs PyTorch, which is not installed; pip install torch\n"


def test_a_torch_that_cannot_use_the_gpu_is_refused() -> None:
    torch = pytest.importorskip("torch", reason=NEEDED)
    if torch.cuda.is_available():
        pytest.skip("this PyTorch can use the GPU")
    gpu = type("Gpu", (), {"kind": "cuda"})()
    with pytest.raises(MissingExtra, match="cannot use the GPU"):
        peers.torch_place(gpu)


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        (("encoder=mlp",), "encoder = full, got mlp"),
        (("hindsight=none",), "hindsight = path, got none"),
        (("latency_steps=2",), "latency_steps = 1, got 2"),
        (("updates=0",), "updates = at least 1, got 0"),
        (("isv.n_step_anneal_steps=9",), "n of the peer is constant, got isv.n_step_anneal_steps = 9"),
    ],
)
def test_what_the_peer_does_not_do_is_refused_by_name(sets: tuple[str, ...], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        peers.check(load_config(sets=[*SMALL, *sets]))


def test_an_unknown_variant_is_a_usage_error() -> None:
    done = command("--variants", "jit")
    assert done.returncode == 2 and "--variants" in done.stderr and "Traceback" not in done.stderr


def test_denormals_count_again_after_the_comparison() -> None:
    torch = pytest.importorskip("torch", reason=NEEDED)
    with pytest.raises(KeyError), peers._like_our_cpu(torch.device("cpu")):
        assert not (np.full(1, 1e-310) * 1.0).any()
        raise KeyError
    assert (np.full(1, 1e-310) * 1.0).any()


def test_sizes_are_made_ready_side_by_side_and_a_size_that_cannot_be_stops_nothing(monkeypatch) -> None:
    pytest.importorskip("torch", reason=NEEDED)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")  # PyTorch's own: torch.compile gives back the function
    good, bad = small("seed"), load_config(sets=[*SMALL, *FORMS["seed"], "device=cuda:77"])
    assert compile_ahead([good, bad], Terminal(quiet=True)) == 1
