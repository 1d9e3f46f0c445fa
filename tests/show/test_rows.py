"""Pixels for neurons."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carebn.show.rows import MOST_PIXELS, Rows, plan_rows


def test_by_hand() -> None:
    assert plan_rows([110, 256, 256, 10], 800) == [Rows(1, 110, 1), Rows(1, 256, 1), Rows(1, 256, 1), Rows(1, 10, 10)]
    assert plan_rows([100, 40], 100) == [Rows(2, 50, 1), Rows(1, 40, 1)]
    assert plan_rows([7], 1000) == [Rows(1, 7, MOST_PIXELS)]
    with pytest.raises(ValueError, match="3 layers need more than 2 pixels"):
        plan_rows([5, 5, 5], 2)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4000), min_size=1, max_size=6), st.integers(6, 1200))
def test_always_within_the_budget_and_every_layer_seen(neurons: list[int], budget: int) -> None:
    rows = plan_rows(neurons, budget)
    assert sum(row.height for row in rows) <= budget
    for n, row in zip(neurons, rows, strict=True):
        assert row.shown == len(range(0, n, row.every)) >= 1
        assert 1 <= row.pixels <= MOST_PIXELS
        assert row.every == 1 or sum(neurons) > budget
