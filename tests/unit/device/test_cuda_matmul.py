"""How products are cut: pure arithmetic, no GPU."""

import numpy as np
import pytest

from foxhunt_cli.device import cuda_matmul
from foxhunt_cli.device.base import DeviceError, Product
from foxhunt_cli.kernels.contract import parse_file
from foxhunt_cli.kernels.registry import cuda_root

SIZES = [(1, 1, 1), (16, 128, 256), (512, 296, 128), (4096, 512, 128), (131072, 11, 128), (131072, 296, 56)]
SIZES += [(128, 296, 131072), (56, 128, 131072), (128, 11, 131072), (3_000_000, 56, 56), (128, 4096, 7)]


def shape(m, n, k):
    return cuda_matmul.Shape(m, n, k, k, n, n)


@pytest.mark.parametrize("precision", ["tf32", "fp32"])
@pytest.mark.parametrize("trans", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("size", SIZES)
def test_every_cut_names_a_kernel_and_covers_k(size, trans, precision):
    kernels = {c.name for f in (cuda_root() / "cuda_only").glob("gemm_*.cu") for c in parse_file(f)}
    cut = cuda_matmul.cut(shape(*size), *trans, precision)
    assert cut.kernel in kernels
    assert cut.kernel.endswith(f"{cut.rows}x{cut.cols}")
    assert (cut.splits - 1) * cut.k_chunk < size[2] <= cut.splits * cut.k_chunk  # no split is empty
    assert 1 <= cut.blocks(shape(*size)) < 1 << 31
    assert cut.workspace(shape(*size)) * 4 <= 64 << 20


def test_long_sums_are_split_and_short_ones_are_not():
    assert cuda_matmul.cut(shape(128, 128, 131072)).splits > 32
    assert cuda_matmul.cut(shape(131072, 296, 128)).splits == 1
    assert cuda_matmul.cut(shape(4096, 128, 256)).splits == 1


def array(*dims, dtype=np.float32):
    return np.zeros(dims, dtype)


def test_shape_of_follows_the_transposes_and_strides():
    wide = array(50, 40)
    product = Product(a=wide[:, 8:24], b=array(50, 11), out=array(16, 11), trans_a=True)
    assert cuda_matmul.shape_of(product) == cuda_matmul.Shape(16, 11, 50, 40, 11, 11)


@pytest.mark.parametrize(
    ("product", "message"),
    [
        (Product(array(4, 3), array(4, 5), array(4, 5)), r"op\(a\) is \[4, 3\]"),
        (Product(array(4, 3), array(3, 5), array(5, 4)), r"out must be \[4, 5\]"),
        (Product(array(4, 3), array(3, 5, dtype=np.float64), array(4, 5)), "b must be a 2-D float32"),
        (Product(array(4), array(3, 5), array(4, 5)), "a must be a 2-D"),
        (Product(array(0, 3), array(3, 5), array(0, 5)), "a is empty"),
        (Product(array(3, 4).T, array(3, 5), array(4, 5)), "use trans_a"),
    ],
)
def test_wrong_products_say_expected_and_got(product, message):
    with pytest.raises(DeviceError, match=message):
        cuda_matmul.shape_of(product)


HOPPER_CUTS = [
    ((262144, 296, 128), False, False, "gemm_rows_304x128"),
    ((262144, 128, 296), False, True, "gemm_rows_128x304"),
    ((262144, 128, 128), False, False, "gemm_rows_128x128"),
    ((262144, 56, 296), False, True, "gemm_rows_56x304"),
    ((56, 296, 258048), True, False, "gemm_tall_56x296"),
    ((128, 512, 258048), True, False, "gemm_tall_128x256"),
    ((128, 128, 8192), True, False, "gemm_tall_128x128"),
    ((56, 56, 8192), True, False, "gemm_tall_56x56"),
]


@pytest.mark.parametrize(("size", "trans_a", "trans_b", "kernel"), HOPPER_CUTS)
def test_many_rows_have_kernels_of_their_own_on_hopper(size, trans_a, trans_b, kernel):
    m, n, k = size
    whole = cuda_matmul.Shape(m, n, k, m if trans_a else k, k if trans_b else n, n)
    cut = cuda_matmul.cut(whole, trans_a, trans_b, "tf32", hopper=True)
    assert cut.kernel == kernel
    assert cut.kernel in {c.name for c in parse_file(cuda_root() / "cuda_only" / f"gemm_{cut.family}.cu")}
    assert (cut.splits - 1) * cut.k_chunk < k <= cut.splits * cut.k_chunk
    assert cut.blocks(whole) <= 2 * cuda_matmul.MULTIPROCESSORS
    assert (cut.splits > 1) == trans_a
    assert cut.workspace(whole, column_sums=True) - cut.workspace(whole) == (cut.splits * n if trans_a else 0)


@pytest.mark.parametrize(
    "size", [(32767, 128, 128), (262144, 99, 128), (262144, 128, 99), (262144, 512, 128), (262144, 8, 8)]
)
def test_other_shapes_keep_their_tiles_on_hopper(size):
    assert cuda_matmul.cut(shape(*size), hopper=True) == cuda_matmul.cut(shape(*size))
