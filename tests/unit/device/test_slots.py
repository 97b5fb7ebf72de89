"""What is read off a kernel's text about the slots it touches; where the text leaves it open, all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from foxhunt_cli.isv.table import number
from foxhunt_cli.kernels.contract import parse_file
from foxhunt_cli.kernels.slots import WHOLE, touched

HEAD = """
#include "generated/isv_slots.cuh"
static __device__ inline float rate(const float* isv, int group) { return isv[ISV_LR_BCE + group]; }
static __device__ inline void publish(float* slot, float value) { *slot = value; }
static __device__ inline float renamed(const float* slots) { return slots[ISV_GAMMA]; }
struct Env { const float* isv; };
static __device__ inline float of_env(const Env& env) { return env.isv[ISV_P_MIN]; }
#define FLOOR(isv) isv[ISV_LR_BCE]
"""
GAMMA, TAU, P_MIN, LOSS = (number(name) for name in ("GAMMA", "TARGET_TAU", "P_MIN", "LOSS_FRD"))
RATES = {number(name) for name in ("LR_BCE", "LR_Q", "LR_PI", "LR_V", "LR_AUX")}
BODIES = {
    "one slot": ("isv[ISV_GAMMA] = isv[ISV_TARGET_TAU];", {GAMMA, TAU}, {GAMMA}),
    "added to": ("isv[ISV_GAMMA] += 1.0f;", {GAMMA}, {GAMMA}),
    "compared": ("if (isv[ISV_GAMMA] == 1.0f) out[0] = 1.0f;", {GAMMA}, set()),
    "a choice": ("out[0] = isv[n > 1 ? ISV_GAMMA : ISV_P_MIN];", {GAMMA, P_MIN}, set()),
    "a table": ("out[0] = rate(isv, n);", RATES, set()),
    "a comment": ("out[0] = 1.0f;  // isv[ISV_GAMMA]", set(), set()),
    "a parameter": ("isv[slot] = isv[ISV_GAMMA];", {GAMMA, "slot"}, {"slot"}),
    "a pointer": ("publish(isv + ISV_LOSS_FRD, 1.0f);", {LOSS}, {LOSS}),
    "an address": ("publish(&isv[ISV_LOSS_FRD], 1.0f);", {LOSS}, {LOSS}),
    "a struct": ("const Env env = {isv}; out[0] = of_env(env);", {P_MIN}, set()),
    "a macro": ("out[0] = FLOOR(isv);", {number("LR_BCE")}, set()),
    "any index": ("for (int i = 0; i < n; ++i) out[i] = isv[i];", WHOLE, set()),
    "an alias": ("float* other = isv; other[3] = 1.0f;", WHOLE, WHOLE),
    "the first": ("*isv = 1.0f;", WHOLE, WHOLE),
    "another name": ("out[0] = renamed(isv);", WHOLE, WHOLE),
    "a product": ("out[0] = 2.0f * isv[ISV_GAMMA];", {GAMMA}, set()),
    "a call inside a call": ("out[0] = sqrtf(rate(isv, n));", RATES, set()),
}


@pytest.mark.parametrize("case", BODIES)
def test_slots_of_a_text(case: str, tmp_path: Path) -> None:
    body, reads, writes = BODIES[case]
    path = tmp_path / "sample.cu"
    signature = 'extern "C" __global__ void sample(float* isv, float* out, int n, int slot)'
    path.write_text(
        f"{HEAD}\n// sample: test.\n// launch: threads n, block 32\n// updates: isv\n{signature} {{ {body} }}\n"
    )
    found = touched(parse_file(path)[0])
    assert (found.reads, found.writes) == (reads | writes, writes)


def test_a_const_vector_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "sample.cu"
    signature = 'extern "C" __global__ void sample(const float* isv, float* out, int n)'
    path.write_text(f"{HEAD}\n// sample: test.\n// launch: threads n, block 32\n{signature} {{ out[0] = isv[n]; }}\n")
    found = touched(parse_file(path)[0])
    assert (found.reads, found.writes) == (WHOLE, set())


def test_numbers_take_the_launch_s_own_slot(tmp_path: Path) -> None:
    path = tmp_path / "sample.cu"
    signature = 'extern "C" __global__ void sample(float* isv, int slot)'
    comment = "// sample: test.\n// launch: threads 1, block 32\n// updates: isv\n"
    path.write_text(f"{HEAD}\n{comment}{signature} {{ isv[slot] = 1.0f; }}\n")
    assert touched(parse_file(path)[0]).numbers({"slot": 7}) == ({7}, {7})
