"""The capacity rule: powers of two, room for an iteration, a default that always serves."""

import pytest

from foxhunt_cli.replay.capacity import CAPACITY_MAX, check_capacity, default_capacity, least_capacity


@pytest.mark.parametrize(
    ("batch", "rollout", "capacity"),
    [(1, 1, 32_768), (16, 16, 32_768), (256, 16, 32_768), (512, 16, 65_536), (4096, 16, 524_288), (256, 64, 65_536)],
)
def test_default(batch, rollout, capacity):
    assert default_capacity(batch, rollout) == capacity
    assert capacity >= least_capacity(batch, rollout)


@pytest.mark.parametrize("capacity", [0, 512, 1000, 32_769, 2 * CAPACITY_MAX])
def test_only_powers_of_two_within_bounds(capacity):
    with pytest.raises(ValueError, match="power of two from 1,024 to 4,194,304"):
        check_capacity(capacity, 1, 1)


def test_too_small_for_an_iteration_names_what_is_needed():
    with pytest.raises(ValueError, match=r"at least 65,536; use 65,536"):
        check_capacity(32_768, 512, 32)
    assert check_capacity(65_536, 512, 32) == 65_536


def test_more_than_the_largest_is_refused():
    with pytest.raises(ValueError, match="needs at least 6,291,456, the largest replay has 4,194,304; use a smaller"):
        default_capacity(65_536, 16)
    assert default_capacity(40_000, 1) == CAPACITY_MAX
