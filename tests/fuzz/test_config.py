"""Configuration from files, --set and seeds: a valid run, or a ConfigError that names where the value came from."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from foxhunt_cli.config.load import ConfigError, load_config, parse_set
from foxhunt_cli.config.run import RunConfig

FUZZ = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
FIELDS = [*RunConfig.model_fields, "isv.lr_pi", "isv.gamma", "data.fee", "data.tick_size", "synthetic.snapshots"]
KEYS = st.one_of(
    st.sampled_from(FIELDS),
    st.lists(st.sampled_from([*FIELDS, "x", "", " ", "=", "\n", "ü", '"', "a" * 40]), min_size=1, max_size=3).map(
        ".".join
    ),
)
NUMBERS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.floats().map(repr),
    st.sampled_from(["-0", "1e400", "nan", "-inf", "0x1F", "1_000", "007", "2024-01-01", "99:99:99", "9" * 5000]),
)
VALUES = st.one_of(
    NUMBERS,
    st.sampled_from(
        ["true", "[]", "{}", "[1, [2, [3]]]", "{a = {b = 1}}", '""', "'x'", "''' ", "auto", "full", "seed"]
    ),
    st.text(max_size=20),
)


@given(key=KEYS, value=VALUES)
@example(key="isv", value="1")
@example(key="synthetic", value="[1]")
@example(key="paths", value="[]")
@example(key="paths", value='"\\u0000"')
@example(key="name", value='"a\\n"')
@example(key="controllers", value="{ppo_clip = 1}")
@example(key="seed", value=str(2**63))
@example(key="batch", value="[" * 3000)
@FUZZ
def test_set(key: str, value: str) -> None:
    try:
        config = load_config(sets=[f"{key}={value}"])
    except ConfigError as error:
        assert str(error).strip() and len(str(error)) < 20_000
        return
    assert isinstance(config, RunConfig)
    RunConfig.model_validate(config.model_dump(mode="json"))


@given(text=st.text(max_size=60))
@FUZZ
def test_set_of_any_text_is_a_setting_or_an_error_that_repeats_it(text: str) -> None:
    try:
        assert parse_set(text).key
    except ConfigError as error:
        assert "--set" in str(error)


TOML = st.lists(
    st.one_of(st.tuples(KEYS, VALUES).map(" = ".join), st.sampled_from(["[isv]", "[data]", "[[x]]", "[", ""]))
)


@pytest.mark.parametrize("kind", ["file", "seeds"])
@given(rows=TOML, noise=st.binary(max_size=30))
@example(rows=["[isv]", "lr_pi = 1e-3"], noise=b"")
@example(rows=["a = " + "[" * 2000 + "]" * 2000], noise=b"")
@example(rows=["a" + ".a" * 3000 + " = 1"], noise=b"")
@FUZZ
def test_files(tmp_path, kind: str, rows: list[str], noise: bytes) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes("\n".join(rows).encode(errors="replace") + noise)
    try:
        config = load_config(**{kind: path})
    except ConfigError as error:
        assert str(path) in str(error) or "\n" not in str(error).strip()
        return
    assert isinstance(config, RunConfig)
