"""How many fetches are in flight, where they begin, and how much they ask for."""

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.client.fetching.fetch_window import HELD_BYTES, LEAST_FETCH_BYTES, FetchWindow

MIB = 1 << 20


def window(end_offset=1_000_000, max_bytes=4 * MIB, **settings):
    return FetchWindow(end_offset, max_bytes=max_bytes, **settings)


def learnt(*spans, max_bytes=4 * MIB, **settings):
    """After fetches that brought so many offsets each."""
    made = window(max_bytes=max_bytes, **settings)
    for span in spans:
        made.reached(0, span, size=max_bytes, last_batch=16_384)
    return made


def paced(round_trip_s, work_s, **settings):
    made = window(**settings)
    made.answered(round_trip_s)
    made.worked(work_s)
    return made


def test_without_a_delay_one_fetch_is_in_flight():
    assert window().wanted_in_flight == 1
    assert paced(0.001, 0.016).wanted_in_flight == 1
    assert paced(0.015, 0.016).wanted_in_flight == 1


def test_with_a_delay_so_many_that_no_answer_is_waited_for():
    assert paced(0.040, 0.016).wanted_in_flight == 3
    assert paced(0.100, 0.016).wanted_in_flight == 7


def test_the_bytes_in_flight_are_bounded():
    assert paced(10, 0.001).wanted_in_flight == HELD_BYTES // (4 * MIB)
    assert paced(10, 0.001, max_bytes=64 << 10).wanted_in_flight == 16
    assert paced(10, 0.001, max_bytes=HELD_BYTES * 2).wanted_in_flight == 1


def test_an_answer_that_lay_there_does_not_count_as_slow():
    made = paced(0.001, 0.016)
    made.answered(0.200)
    assert made.wanted_in_flight == 1


def test_where_the_end_is_not_known_none_is_guessed():
    assert paced(10, 0.001, end_offset=None).wanted_in_flight == 1


def test_a_guess_needs_an_answer():
    assert window().next_start(70, 70) is None


def test_equal_batches_are_guessed_exactly():
    made = learnt(1000, 1000, 1000)
    assert made.next_start(0, 0) == 1000
    assert made.next_start(0, 5000) == 6000


def test_unequal_ones_with_a_margin_unless_that_would_be_half_of_it():
    assert learnt(1000, 900, 950).next_start(0, 0) == 800
    assert learnt(1000, 1000, 600, 1000).next_start(0, 0) == 1000


def test_what_a_gap_has_passed_is_not_fetched():
    assert learnt(1000).next_start(7000, 3000) == 7000


def test_nothing_is_fetched_beyond_the_end():
    assert learnt(1000, end_offset=3000).next_start(0, 2000) is None


def test_the_last_fetch_asks_for_little_more_than_there_is():
    made = learnt(40_000, end_offset=50_000)
    assert made.limit(0) == 4 * MIB
    there = 10_000 * 4 * MIB // 40_000
    assert there < made.limit(40_000) < there * 1.1 + 16_384
    assert made.limit(49_999) == LEAST_FETCH_BYTES
    assert window().limit(0) == 4 * MIB


def test_a_hole_is_fetched_by_its_size():
    made = learnt(40_000)
    assert made.limit(0, 100) == LEAST_FETCH_BYTES
    assert made.limit(0, 10_000) < 2 * MIB


@given(
    spans=st.lists(st.integers(-5, 10**9), max_size=9),
    position=st.integers(0, 10**9),
    last=st.integers(0, 10**9),
)
def test_a_guess_never_lies_before_what_is_read_or_behind_what_is_fetched(spans, position, last):
    made = learnt(*spans, end_offset=10**9)
    start = made.next_start(position, last)
    if start is not None:
        assert position <= start < 10**9
        assert start > last or start == position
    assert 0 < made.limit(position) <= 4 * MIB
