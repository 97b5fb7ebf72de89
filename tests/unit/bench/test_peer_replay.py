"""The peer's replay: n-step pairs across iterations and episodes, proportional draws, priorities."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the peer of bench peers needs torch (foxhunt[dev])")

from foxhunt_cli.bench import peer_replay  # noqa: E402
from foxhunt_cli.bench.peer_rules import Rules  # noqa: E402
from foxhunt_cli.isv.seeds import seed_values  # noqa: E402

RULES = Rules.of(seed_values({}))
CPU = torch.device("cpu")


def store(capacity: int = 64) -> peer_replay.Fields:
    return peer_replay.store(capacity, RULES, CPU, number=((), torch.int64))


def test_a_tail_pairs_moments_with_their_successors() -> None:
    n, rows = 8, 3
    tail = {"state": torch.full((n, rows), -1.0)}
    seen = []
    for first in range(0, 40, 5):
        fresh = torch.arange(first, first + 5.0)[:, None].expand(-1, rows)
        joined = peer_replay.shift(tail, {"state": fresh})["state"]
        assert joined.shape == (n + 5, rows)
        seen += [(float(a), float(b)) for a, b in zip(joined[:5, 0], joined[n:, 0], strict=True)]
    assert all(b - a == n for a, b in seen if a >= 0)
    assert [b for _, b in seen] == list(range(40))


def test_what_is_not_valid_is_never_drawn_and_slots_wrap() -> None:
    held = store(16)
    for first in range(0, 48, 12):
        numbers = torch.arange(first, first + 12)
        peer_replay.push(held, numbers % 3 != 0, {"number": numbers})
    assert sorted(held["number"].tolist()) == list(range(32, 48))
    slots, weight, fields = peer_replay.sample(held, 400, RULES)
    assert bool((fields["number"] % 3 != 0).all()) and set(fields["number"].tolist()) == {
        k for k in range(32, 48) if k % 3
    }
    assert float(weight.max()) == 1.0 and torch.equal(held["number"][slots], fields["number"])


def test_draws_are_proportional_to_priorities_and_weights_undo_it() -> None:
    torch.manual_seed(2)
    held = store(8)
    peer_replay.push(held, torch.ones(8, dtype=torch.bool), {"number": torch.arange(8)})
    held["priority"].copy_(torch.tensor([1.0, 2, 4, 0, 1, 1, 2, 5]))
    _, weight, fields = peer_replay.sample(held, 16_000, RULES)
    share = torch.bincount(fields["number"], minlength=8) / 16_000
    torch.testing.assert_close(share, held["priority"] / 16.0, atol=1e-3, rtol=0.0)  # stratified: exact but for edges
    wanted = held["priority"][fields["number"]] ** -RULES.per_beta
    torch.testing.assert_close(weight, wanted / wanted.max())


def test_priorities_follow_the_errors_and_the_largest_decays() -> None:
    held = store(8)
    held["largest"].fill_(10.0)
    slots = torch.tensor([1, 5])
    peer_replay.reprioritise(held, slots, torch.tensor([0.5, -2.0]), RULES)
    torch.testing.assert_close(held["priority"][slots], torch.tensor([0.5, 2.0]) ** RULES.per_alpha + 1e-6)
    assert float(held["largest"]) == pytest.approx(9.99)
