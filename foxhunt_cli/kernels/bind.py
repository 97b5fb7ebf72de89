"""Binds a kernel's parameters by name and checks everything that a launch takes on trust.

A pointer parameter is an array of that name, a scalar a dimension (or a float) of that name; a stage may remap
both. Presence, dtype, contiguity, size, aliasing and block limits are checked here, once, when a plan is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foxhunt_cli.config.dims import DimensionError, evaluate
from foxhunt_cli.device.base import MAX_BLOCK, Launch, extent
from foxhunt_cli.kernels.contract import KernelContract, Param


class BindError(ValueError):
    """A kernel cannot be launched as asked; names kernel, parameter, expected, got, file and line."""


def bind(
    contract: KernelContract,
    arrays: Mapping[str, Any],
    dims: Mapping[str, int | float],
    remap: Mapping[str, str] | None = None,
    *,
    double: bool = False,
) -> Launch:
    """A frozen launch of ``contract``.

    arrays: device arrays by buffer name. dims: scalars by name. remap: parameter -> buffer name, or an expression
    over dims for a scalar. double: the CPU device's gradient-check build, where float arrays hold float64.
    Raises BindError.
    """
    remap = dict(remap or {})
    unknown = set(remap) - {p.name for p in contract.params}
    if unknown:
        raise _error(contract, sorted(unknown)[0], "a parameter of the kernel", "no such parameter")
    scalars = {p.name: _scalar(contract, p, remap, dims) for p in contract.params if not p.pointer}
    pointers = {p.name: _pointer(contract, p, remap, arrays, double) for p in contract.params if p.pointer}
    _check_aliasing(contract, pointers)
    grid, block, shared = _geometry(contract, {**dims, **scalars})
    args = tuple(pointers[p.name] if p.pointer else scalars[p.name] for p in contract.params)
    return Launch(contract, grid, block, shared, args)


def _error(contract: KernelContract, parameter: str, expected: str, got: str) -> BindError:
    place = f"{contract.file.name}:{contract.line}"
    return BindError(f"kernel {contract.name} ({place}), parameter {parameter}: expected {expected}, got {got}")


def _scalar(contract: KernelContract, param: Param, remap: Mapping[str, str], dims: Mapping[str, Any]) -> int | float:
    wanted = remap.get(param.name, param.name)
    if wanted in dims:
        value = dims[wanted]
    else:
        try:
            value = evaluate(wanted, dims)
        except DimensionError as error:
            raise _error(contract, param.name, "a dimension", str(error)) from None
    if param.ctype == "float":
        return float(value)
    if isinstance(value, float) and not value.is_integer():
        raise _error(contract, param.name, f"an integer ({param.ctype})", repr(value))
    return int(value)


def _pointer(
    contract: KernelContract, param: Param, remap: Mapping[str, str], arrays: Mapping[str, Any], double: bool
) -> Any:
    name = remap.get(param.name, param.name)
    if name not in arrays:
        raise _error(contract, param.name, f"a buffer named '{name}'", "none of that name")
    array = arrays[name]
    expected = "float64" if double and param.dtype == "float32" else param.dtype
    if str(array.dtype) != expected:
        raise _error(contract, param.name, f"dtype {expected}", f"buffer '{name}' of dtype {array.dtype}")
    if not array.flags.c_contiguous:
        raise _error(contract, param.name, "a C-contiguous array", f"buffer '{name}' with strides {array.strides}")
    if array.size == 0:
        raise _error(contract, param.name, "at least one element", f"buffer '{name}' of shape {array.shape}")
    return array


def _check_aliasing(contract: KernelContract, pointers: Mapping[str, Any]) -> None:
    """No written array may overlap another argument: kernels rely on it (``__restrict__``, order of writes)."""
    spans = {name: extent(array) for name, array in pointers.items()}
    for name in contract.writes:
        for other, (start, stop) in spans.items():
            if other != name and spans[name][0] < stop and start < spans[name][1]:
                raise _error(contract, name, "memory of its own", f"an overlap with parameter {other}")


def _geometry(contract: KernelContract, names: Mapping[str, Any]) -> tuple[int, int, int]:
    try:
        items, block, shared = (
            evaluate(e, names) for e in (contract.launch.items, contract.launch.block, contract.launch.shared)
        )
    except DimensionError as error:
        raise _error(contract, "launch", "known dimensions", str(error)) from None
    if not 1 <= block <= MAX_BLOCK:
        raise _error(contract, "launch", f"a block of 1 to {MAX_BLOCK} threads", str(block))
    if items < 1:
        raise _error(contract, "launch", "at least one item", str(items))
    grid = items if contract.launch.mode == "blocks" else -(-items // block)
    return grid, block, shared
