"""Dependencies from memory, and schedules from dependencies: aliases, views, flags, slots, no device needed."""

from __future__ import annotations

import numpy as np
import pytest

from foxhunt_cli.device.base import CopyArray, Fill, Launch, Operation, Product
from foxhunt_cli.device.branches import accesses, assign, dependencies, estimate, schedule
from foxhunt_cli.kernels.contract import ContractError, parse_file
from foxhunt_cli.kernels.registry import kernel

KERNELS = """
// add: out += x.
// launch: threads N, block 32
// updates: out
extern "C" __global__ void add(const float* x, float* out, int N) { out[threadIdx.x] += x[threadIdx.x]; }

// copy: out = x.
// launch: threads N, block 32
extern "C" __global__ void copy(const float* x, float* out, int N) { out[threadIdx.x] = x[threadIdx.x]; }

// walk: one thread, element by element.
// launch: threads 1, block 32
// chain: 5 + 0.5*N us
extern "C" __global__ void walk(const float* x, float* out, int N) { for (int i = 0; i < N; ++i) out[i] = x[i]; }
"""


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> dict:
    path = tmp_path_factory.mktemp("kernels") / "sample.cu"
    path.write_text(KERNELS)
    return {c.name: c for c in parse_file(path)}


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.fixture
def launch(contracts: dict):
    def make(name: str, x: np.ndarray, out: np.ndarray, when: np.ndarray | None = None) -> Launch:
        return Launch(contracts[name], 1, 32, 0, (x, out, x.size), when)

    return make


def test_reads_share_and_writes_wait(launch) -> None:
    """Behind its writer; a writer behind all readers since; what another dependency implies is left out."""
    a, b, c, d = (floats(8) for _ in range(4))
    operations = [launch("copy", a, b), launch("copy", b, c), launch("copy", b, d), launch("copy", a, b),
                  launch("copy", b, a)]  # fmt: skip
    assert dependencies(operations) == ((), (0,), (0,), (1, 2), (3,))


def test_an_output_is_not_read_but_waits_for_its_writer(launch) -> None:
    a, b = floats(8), floats(8)
    assert dependencies([launch("copy", a, b), launch("copy", a, b), launch("add", a, b)]) == ((), (0,), (1,))


def test_views_meet_where_they_overlap_and_nowhere_else(launch) -> None:
    whole, other = floats(32), floats(8)
    left, right, middle = whole[:16], whole[16:], whole[12:20]
    operations = [launch("copy", other, left), launch("copy", other, right), launch("add", middle, other), Fill(whole)]
    assert dependencies(operations) == ((), (), (0, 1), (2,))


def test_a_strided_view_holds_what_lies_between_its_rows(launch) -> None:
    """Columns of the same rows wait for each other, other rows do not."""
    wide, a, b = floats(8, 10), floats(4, 3), floats(3, 5)
    upper, beside, lower = wide[:4, :5], wide[:4, 5:], wide[4:, :5]
    operations = [Product(a, b, upper), Product(a, b, beside), Product(a, b, lower)]
    assert dependencies(operations) == ((), (0,), ())
    out = accesses(operations[0])[-1]
    assert (out.stop - out.start, out.write) == ((3 * 10 + 5) * 4, True)


def test_operands_fills_and_copies_count(launch) -> None:
    a, b, out, held = floats(4, 3), floats(3, 5), floats(4, 5), floats(4, 5)
    operations: list[Operation] = [Fill(a), Product(a, b, out), CopyArray(out, held), Fill(out), Fill(b)]
    assert dependencies(operations) == ((), (0,), (1,), (2,), (1,))


def test_everything_a_product_takes_counts() -> None:
    """What it adds is read, sums of columns are written."""
    a, b, out, added, sums = floats(4, 3), floats(3, 5), floats(4, 5), floats(4, 5), floats(1, 5)
    product = Product(a, b, out, addend=added, column_sums=sums)
    assert dependencies([Fill(added), Fill(sums), product, Fill(added), Fill(sums)]) == ((), (), (0, 1), (2,), (2,))
    arrays = [v for v in vars(product).values() if isinstance(v, np.ndarray)]
    assert len(accesses(product)) == len(arrays) == 5


def test_a_condition_is_read(launch) -> None:
    flag, a, b = np.zeros(1, np.int32), floats(8), floats(8)
    conditional: list[Operation] = [Fill(flag), launch("copy", a, b, flag), Fill(a, flag), Fill(flag)]
    assert dependencies(conditional) == ((), (0,), (1,), (2,))
    product = Product(floats(2, 2), floats(2, 2), floats(2, 2), when=flag)
    assert dependencies([Fill(flag), product]) == ((), (0,))


def slot_launch(name: str, isv: np.ndarray, **scalars: int) -> Launch:
    contract = kernel(name)
    args = tuple(
        isv if p.name == "isv" else np.zeros(64, p.dtype) if p.pointer else scalars.get(p.name, 1)
        for p in contract.params
    )
    return Launch(contract, 1, 32, 0, args)


def test_slots_of_the_vector_are_told_apart() -> None:
    """Two writers of other slots share it, a reader waits for the writer of its slot, the record for everyone."""
    isv = floats(640)
    gamma, tau = slot_launch("rl_controller_gamma", isv), slot_launch("rl_controller_target_tau", isv)
    reader, record = slot_launch("rl_polyak", isv), slot_launch("rl_diag_record", isv)
    assert dependencies([gamma, tau, reader, record]) == ((), (), (1,), (0, 1))
    means = [slot_launch("rl_mean_into_slot", isv, slot=slot) for slot in (600, 601, 600)]
    assert dependencies(means) == ((), (), (0,))
    assert dependencies([Fill(isv), *means]) == ((), (0,), (0,), (1,))


def test_a_vector_of_doubles_has_wider_slots() -> None:
    isv = np.zeros(640, np.float64)
    means = [slot_launch("rl_mean_into_slot", isv, slot=slot) for slot in (600, 601, 600)]
    assert dependencies(means) == ((), (), (0,))


def test_the_longest_way_goes_first_and_stays_on_its_branch() -> None:
    """A long chain 0-1-2 beside short 3, 4; 5 joins both."""
    before, costs = ((), (0,), (1,), (), (3,), (2, 4)), (9.0, 9.0, 9.0, 1.0, 1.0, 1.0)
    order, branch = assign(before, costs, 2)
    assert order[0] == 0 and order[-1] == 5
    assert branch == (0, 0, 0, 1, 1, 0)
    assert assign(before, costs, 1) == ((0, 1, 2, 3, 4, 5), (0,) * 6)


def test_a_chain_counts_where_it_is_longer_than_the_memory_takes(launch) -> None:
    """As many bytes, one kernel of which says how long its steps take one after the other."""
    a, b = floats(40), floats(40)
    assert estimate(launch("walk", a, b)) == 5 + 0.5 * 40 > estimate(launch("copy", a, b))
    large, other = floats(1 << 26), floats(1 << 26)
    copied = estimate(launch("copy", large, other))
    assert estimate(Launch(launch("walk", a, b).contract, 1, 32, 0, (large, other, 40))) == copied > 100


@pytest.mark.parametrize("line", ["chain: 5 + 0.5*M us", "chain: 5*x us", "chain: 5", "chain: N us"])
def test_a_chain_names_the_kernels_scalars(tmp_path, line: str) -> None:
    (tmp_path / "sample.cu").write_text(KERNELS.replace("chain: 5 + 0.5*N us", line))
    with pytest.raises(ContractError, match="kernel walk: expected 'chain"):
        parse_file(tmp_path / "sample.cu")


@pytest.mark.parametrize("branches", [1, 2, 3, 7])
def test_orders_keep_dependencies(branches: int) -> None:
    rng = np.random.default_rng(branches)
    before = tuple(tuple(sorted(rng.choice(i, min(i, 2), replace=False).tolist())) for i in range(60))
    order, branch = assign(before, rng.uniform(1, 9, 60).tolist(), branches)
    place = {index: at for at, index in enumerate(order)}
    assert sorted(order) == list(range(60))
    assert all(place[need] < place[index] for index, needs in enumerate(before) for need in needs)
    assert max(branch) < branches


def test_one_branch_is_the_list(launch) -> None:
    a, b, c = floats(8), floats(8), floats(8)
    operations = [launch("copy", a, b), launch("copy", a, c)]
    assert schedule(operations, 1).order == (0, 1)
    assert schedule(operations, 1).branches == 1
    assert schedule(operations, 2).branches == 2
    assert schedule([], 4).order == ()
