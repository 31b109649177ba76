"""A failing schedule is cut down to what is needed."""

from hypothesis import given
from hypothesis import strategies as st

from simulation.faults.shrink import MOST_RUNS, shrink


@given(st.integers(1, 40), st.sets(st.integers(0, 39), max_size=5))
def test_what_is_needed_is_all_that_is_left(count, needed):
    numbers = range(count)
    needed &= set(numbers)
    assert set(shrink(numbers, lambda part: needed <= set(part))) == needed


def test_a_search_ends_with_what_it_has():
    runs = 0

    def fails(part) -> bool:
        nonlocal runs
        runs += 1
        return len(part) % 2 == 1

    assert shrink(range(999), fails)
    assert runs <= MOST_RUNS
