"""The full encoder as a whole: against PyTorch's automatic differentiation, and the promises of its passes."""

import numpy as np
import pytest

from foxhunt_cli.device.cpu import CpuDevice
from foxhunt_cli.kernels.registry import kernel
from foxhunt_cli.nets import encoder_full
from foxhunt_cli.oracles.encoder_rig import EncoderRig
from foxhunt_cli.pipeline.stage import Matmul, Stage, Step, chosen

H, HEADS, HEAD_DIM, STATE = 128, 8, 16, 16
RELATIVE_L2 = 1e-4  # float32 against float64 over a whole tensor; measured: 1e-6 to 6e-6, as PyTorch in float32


@pytest.fixture(scope="module")
def device():
    return CpuDevice()


@pytest.fixture(scope="module")
def torch():
    missing = "PyTorch is missing: gradients were NOT compared with autograd; install foxhunt[dev]"
    return pytest.importorskip("torch", reason=missing)


def _forward(prefix: str = "") -> list[Step]:
    return chosen(encoder_full.forward(36, prefix), "none")


def _backward() -> list[Step]:
    return chosen(encoder_full.backward(36), "none")


def _distance(want: np.ndarray, got: np.ndarray) -> float:
    """Relative L2; absolute where nothing is expected (one snapshot: no decay acts)."""
    return float(np.linalg.norm(got - want) / (np.linalg.norm(want) or 1.0))


def _scan(torch, xbc, dt, decay):
    """S C of every snapshot, [W, B, 8, 16]."""
    x, b, c = xbc.split([H, STATE, STATE], -1)
    x = x.unflatten(-1, (HEADS, HEAD_DIM))
    state, out = 0.0, []
    for w in range(len(xbc)):
        inflow = (dt[w, ..., None] * x[w])[..., None] * b[w, :, None, None]
        state = decay[w, ..., None, None] * state + inflow
        out.append((state * c[w, :, None, None]).sum(-1))
    return torch.stack(out)


def _mamba(torch, p, tag, x):
    functional = torch.nn.functional
    z, xbc, dt = (x @ p[f"w_{tag}_in"]).split([H, H + 2 * STATE, HEADS], -1)
    padded = functional.pad(xbc.permute(1, 2, 0), (3, 0))  # [B, column, W]
    kernel = p[f"w_{tag}_conv"].t()[:, None]
    xbc = functional.conv1d(padded, kernel, p[f"b_{tag}_conv"], groups=H + 2 * STATE).permute(2, 0, 1)
    xbc = functional.silu(xbc)
    dt = functional.softplus(dt + p[f"b_{tag}_dt"])
    y = _scan(torch, xbc, dt, torch.exp(-torch.exp(p[f"a_log_{tag}"]) * dt))
    y = (y + p[f"skip_{tag}"][:, None] * xbc[..., :H].unflatten(-1, (HEADS, HEAD_DIM))).flatten(2)
    y = functional.rms_norm(y * functional.silu(z), (H,), p[f"w_{tag}_norm"], 1e-5)
    return y @ p[f"w_{tag}_out"]


def _encode(torch, p, x, gap, T):
    x = 56 * torch.softmax(x @ p["w_vsn"] + p["b_vsn"], -1) * x
    x = _mamba(torch, p, "m1", x)
    x = x + _mamba(torch, p, "m2", x)
    h, out = torch.zeros_like(x[0]), []
    for w in range(len(x)):
        u = 1.7159 * torch.tanh(2 / 3 * (torch.cat([x[w], h], -1) @ p["w_cfc_backbone"] + p["b_cfc_backbone"]))
        f, g, rate, offset = (u @ p["w_cfc_gates"] + p["b_cfc_gates"]).chunk(4, -1)
        blend = torch.sigmoid(-rate * gap[w][:, None] + offset)
        h = torch.tanh(f) * blend + torch.tanh(g) * (1 - blend)
        out.append(h)
    return torch.stack(out[-(T + 1) :])


@pytest.mark.parametrize(("B", "T", "K"), [(1, 16, 32), (16, 16, 32), (33, 4, 32), (16, 1, 32), (2, 32, 32), (3, 1, 1)])
def test_against_autograd(device, torch, B, T, K):
    rig = EncoderRig(device, W=K + T, T=T, B=B, seed=B + T)
    rig.run("forward", "backward")
    p = {name: torch.tensor(w, requires_grad=True) for name, w in rig.weights().items()}
    h = _encode(torch, p, torch.tensor(rig.get("x")), torch.tensor(rig.get("gap")), T)
    assert _distance(h.detach().numpy(), rig.get("h")) <= RELATIVE_L2
    (h[:T] * torch.tensor(rig.get("grad_h")[:T])).sum().backward()
    distances = {name: _distance(w.grad.numpy(), rig.get(f"grad_{name}")) for name, w in p.items()}
    print(f"B {B}, T {T}: worst {max(distances, key=distances.get)} {max(distances.values()):.1e}")
    assert all(d <= RELATIVE_L2 for d in distances.values()), distances


def test_two_runs_and_every_schedule_give_the_same_bits():
    results = []
    for order in ("forward", "forward", "reverse", "random:5"):
        rig = EncoderRig(CpuDevice(order=order), W=36, T=4, B=5, seed=3)
        for name in encoder_full.PARAMETERS:  # gradients are overwritten, not added to
            rig.put(f"grad_{name.name}", np.full(rig.get(name.name).shape, np.nan))
        rig.run("forward", "backward")
        results.append({name: rig.get(name) for name in ("h", *(f"grad_{n}" for n in rig.layout.offsets))})
    for other in results[1:]:
        for name, values in results[0].items():
            assert np.isfinite(values).all(), name
            np.testing.assert_array_equal(values, other[name], err_msg=name)


def test_target_pass_agrees_and_leaves_what_the_backward_needs(device):
    rig = EncoderRig(device, W=37, T=5, B=6, seed=4)
    rig.run("forward", "backward")
    plain = {name: rig.get(f"grad_{name}") for name in rig.layout.offsets}
    rig.run("forward", "target", "backward")
    np.testing.assert_array_equal(rig.get("h"), rig.get("target_h"))
    for name, values in plain.items():
        np.testing.assert_array_equal(values, rig.get(f"grad_{name}"), err_msg=name)
    moved = rig.params.copy()
    moved += 0.05
    rig.put_params(moved.astype(np.float32), "target_")
    rig.run("target")
    assert np.any(rig.get("target_h") != rig.get("h"))


def test_bootstrap_slice_of_grad_h_is_not_read(device):
    rig = EncoderRig(device, W=36, T=4, B=2, seed=5)
    rig.run("forward", "backward")
    plain = rig.get("grad_w_m1_in")
    grad_h = rig.get("grad_h")
    grad_h[-1] = np.nan
    rig.put("grad_h", grad_h)
    rig.run("forward", "backward")
    np.testing.assert_array_equal(plain, rig.get("grad_w_m1_in"))


def test_nothing_is_read_before_it_is_written():
    buffers = {b.name for b in encoder_full.BUFFERS} - {"gap"}
    for steps in (_forward() + _backward(), _forward("target_")):
        written: set[str] = set()
        for step in steps:
            assert not (_read([step]) & buffers) - written, step
            written |= _written([step])


def test_every_tensor_has_a_gradient_a_branch_and_a_target():
    tensors = {p.name: p for p in encoder_full.PARAMETERS}
    written = {view.name for step in _backward() if isinstance(step, Matmul) for view in step.results}
    assert {f"grad_{name}" for name in tensors} <= written
    assert all(p.encoder and p.target and p.group == "LR_AUX" for p in tensors.values())
    branches = {"w_vsn": "VSN", "w_m1_out": "MAMBA1", "a_log_m2": "MAMBA2", "b_cfc_gates": "CFC"}
    assert all(tensors[n].branch == f"BRANCH_LR_MULT_{b}" for n, b in branches.items())


def test_forward_only_pass_has_no_activations_of_its_own_width():
    """Target scratch is the backward's scratch: nothing wider than 8 columns a token is added for it."""
    own = {b.name: b.dims for b in encoder_full.BUFFERS if b.name.startswith("target_") and b.name != "target_h"}
    assert sorted(own.values()) == ["W, B", "W, B, 8", "W, B, 8"]
    kept = {n for n in _written(_forward()) if not n.startswith("cfc_recurrent")}
    assert not kept & _written(_forward("target_"))


def _written(steps) -> set[str]:
    names = set()
    for step in steps:
        if isinstance(step, Matmul):
            names.update(view.name for view in step.results)
        elif isinstance(step, Stage):
            names |= {step.remap.get(p, p) for p in kernel(step.kernel).writes}
        else:
            names.add(step.name)
    return names


def _read(steps) -> set[str]:
    names = set()
    for step in steps:
        if isinstance(step, Matmul):
            names |= {view.name for view in step.operands} | ({step.out.name} if step.accumulate else set())
        elif isinstance(step, Stage):
            names |= {step.remap.get(p, p) for p in kernel(step.kernel).reads}
    return names
