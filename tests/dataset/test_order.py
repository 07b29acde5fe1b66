"""The shuffled order is a permutation in each epoch, costs nothing, and never changes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlt.dataset import Order


def epoch(rows: int, seed: int, number: int = 0) -> list[int]:
    order = Order(rows, seed)
    return [order.index(i) for i in range(number * rows, (number + 1) * rows)]


@given(st.integers(1, 700), st.integers(0, 2**40), st.integers(0, 3))
def test_an_epoch_has_each_row_once(rows: int, seed: int, number: int) -> None:
    assert sorted(epoch(rows, seed, number)) == list(range(rows))


def test_epochs_and_seeds_differ() -> None:
    orders = {tuple(epoch(50, seed, number)) for seed in range(5) for number in range(5)}
    assert len(orders) == 25


def test_a_few_rows_come_in_every_order_about_equally_often() -> None:
    counts = Counter(tuple(epoch(3, seed)) for seed in range(6000))
    assert set(counts) == set(permutations(range(3)))
    assert min(counts.values()) > 850
    assert max(counts.values()) < 1150


def test_neighbours_are_scattered() -> None:
    order = epoch(10_000, 1)
    jumps = [abs(a - b) for a, b in pairwise(order)]
    assert 3000 < sum(jumps) / len(jumps) < 3700  # a third of the rows, as in a random order


def test_any_position_of_a_huge_file_is_known_at_once() -> None:
    order = Order(10_000_000_000, 7)
    assert 0 <= order.index(123_456_789_012_345) < 10_000_000_000


def test_the_order_is_the_same_in_every_version() -> None:
    assert epoch(10, 3) == [8, 2, 4, 0, 7, 3, 6, 5, 1, 9]
    assert epoch(10, 3, 1) == [3, 8, 1, 6, 4, 9, 7, 0, 2, 5]


def test_no_rows_have_no_order() -> None:
    with pytest.raises(ValueError, match="no rows"):
        Order(0, 1)
