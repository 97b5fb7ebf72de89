"""Finds the kernels: scans ``cuda_src`` and answers by name.

Works from a checkout (``../cuda_src``) and from an installed wheel (``foxhunt_cli/_cuda_src``).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from foxhunt_cli.kernels.contract import ContractError, KernelContract, parse_file

GENERIC_FOLDERS = ("market", "env", "gates", "nets", "replay", "hindsight", "control", "diag", "fused")


@cache
def cuda_root() -> Path:
    """The folder ``cuda_src``. Raises FileNotFoundError where the package is incomplete."""
    package = Path(__file__).resolve().parent.parent
    for root in (package / "_cuda_src", package.parent / "cuda_src"):
        if (root / "include").is_dir():
            return root
    raise FileNotFoundError(f"no kernels: neither {package}/_cuda_src nor {package.parent}/cuda_src; reinstall foxhunt")


_DEVICE_OWN = ("gemm_", "clear")  # files of cuda_only/ that are operations of the device, not steps of a list


@cache
def kernels() -> dict[str, KernelContract]:
    """Contracts of every kernel that both devices run, by name. Raises ContractError on a name used twice."""
    return _scanned(path for folder in GENERIC_FOLDERS for path in sorted((cuda_root() / folder).glob("*.cu")))


@cache
def gpu_kernels() -> dict[str, KernelContract]:
    """Contracts of the fused kernels that only a GPU runs, by name; products and fills, the device's own, are not."""
    folder = cuda_root() / "cuda_only"
    return _scanned(path for path in sorted(folder.glob("*.cu")) if not path.name.startswith(_DEVICE_OWN))


def kernel(name: str) -> KernelContract:
    """Contract of one kernel. Raises ContractError with the nearest name."""
    found = kernels().get(name) or gpu_kernels().get(name)
    if found:
        return found
    close = difflib.get_close_matches(name, [*kernels(), *gpu_kernels()], n=1)
    raise ContractError(f"no kernel named '{name}'" + (f"; did you mean '{close[0]}'?" if close else ""))


def _scanned(paths: Iterable[Path]) -> dict[str, KernelContract]:
    found: dict[str, KernelContract] = {}
    for path in paths:
        for contract in parse_file(path):
            if contract.name in found:
                raise ContractError(
                    f"{path}:{contract.line}: kernel {contract.name} also in {found[contract.name].file}"
                )
            found[contract.name] = contract
    return found
