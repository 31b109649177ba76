"""The search in an index column, against a count by hand."""

from bisect import bisect_right

from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.log.segments.indexes import count_up_to

COLUMNS = st.lists(st.integers(0, 2000), unique=True, max_size=200).map(sorted)


@settings(deadline=None)
@given(COLUMNS, st.integers(-10, 2010))
def test_it_counts_the_entries_up_to_a_value(column, value):
    expected = sum(entry <= value for entry in column)
    assert count_up_to(len(column), value, column.__getitem__) == expected


@settings(deadline=None)
@given(st.integers(17, 5000), st.integers(1, 1000), st.data())
def test_an_even_column_takes_few_looks_however_long_it_is(count, distance, data):
    looked: list[int] = []

    def at(number: int) -> int:
        looked.append(number)
        return number * distance

    value = data.draw(st.integers(0, count * distance))
    assert count_up_to(count, value, at) == min(count, value // distance + 1)
    assert len(looked) <= 7


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), min_size=17, max_size=60), st.integers(-60, 60))
def test_a_damaged_column_gives_some_number_in_range(column, value):
    assert 0 <= count_up_to(len(column), value, column.__getitem__) <= len(column)


def test_a_column_with_one_far_jump_is_searched_as_any_other():
    column = [*range(500), *range(10**9, 10**9 + 500)]
    for value in (0, 250, 499, 10**6, 10**9, 10**9 + 250, 2 * 10**9):
        found = count_up_to(len(column), value, column.__getitem__)
        assert found == bisect_right(column, value)
