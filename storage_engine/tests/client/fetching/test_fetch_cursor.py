"""Several fetches in flight for one range bring what one after the other would (R-CLI2, R-CLI5)."""

import itertools
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import pairwise
from unittest import mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage_engine.client.fetching import fetch, fetch_cursor, fetch_window
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetch_cursor import Cursor
from storage_engine.client.fetching.fetch_window import FetchWindow
from storage_engine.client.in_flight import InFlight
from storage_engine.core.errors import ErrorCode, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.client.fetching.leader_in_memory import (
    MemoryLeader,
    MemoryLog,
    _Connection,
    base_offsets,
)
from storage_engine.tests.client.fetching.ranges import read_range

T0 = TopicPartition("t", 0)

FAULTS = (
    "lost",
    "late",
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_OUT_OF_RANGE,
)

PADDINGS = st.sampled_from([0, 0, 30, 400])


@st.composite
def logs(draw):
    log = MemoryLog()
    for _ in range(draw(st.integers(15, 40))):
        producer_id = draw(st.sampled_from([7, 8]))
        match draw(st.sampled_from(["data", "gap", "open", "whole", "whole"])):
            case "data":
                log.data(-1, draw(st.integers(1, 9)), draw(PADDINGS))
            case "gap":
                log.gap(draw(st.sampled_from([1, 5, 300])))
            case "open":
                log.data(producer_id, draw(st.integers(1, 9)), draw(PADDINGS))
            case "whole":
                log.data(producer_id, draw(st.integers(1, 3)), draw(PADDINGS))
                log.end(producer_id, abort=draw(st.booleans()))
    log.end_all()
    return log


def in_flight(*counts):
    """As many as is said, one after the other, for ever."""
    wanted = itertools.cycle(counts)
    return mock.patch.object(FetchWindow, "wanted_in_flight", property(lambda _: next(wanted)))


def guesses(*steps):
    """A fetch begins so far behind the one before it, however far that reaches."""
    wanted = itertools.cycle(steps)
    return mock.patch.object(FetchWindow, "_step", lambda _: next(wanted))


@contextmanager
def without_pauses():
    """Retries at once."""
    with (
        mock.patch.object(fetch_cursor, "pause_ms", lambda _: 0),
        mock.patch.object(fetch, "sleep_ms", lambda _: None),
        mock.patch.object(fetch, "_LONGEST_WAIT_MS", 0),
    ):
        yield


def read(leader, start_offset, end_offset, **settings):
    settings.setdefault("isolation", "read_committed")
    return list(read_range(leader, T0, start_offset, end_offset, **settings))


# A log takes some time to draw on a busy machine.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    log=logs(),
    first=st.sampled_from([0, 0, 0, 1, 7, 60]),
    max_bytes=st.sampled_from([1, 300, 1000]),
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    steps=st.none() | st.lists(st.integers(1, 12), min_size=1, max_size=5),
    faults=st.lists(st.none() | st.sampled_from(FAULTS), max_size=12),
)
def test_the_rows_are_those_of_a_plain_read(log, first, max_bytes, counts, steps, faults):
    start_offset, end_offset = min(first, log.last_offset), log.last_offset
    with ExitStack() as stack:
        stack.enter_context(in_flight(*counts))
        stack.enter_context(guesses(*steps) if steps else nullcontext())
        stack.enter_context(without_pauses())
        stack.enter_context(mock.patch.object(fetch_window, "LEAST_FETCH_BYTES", 1))
        leader = stack.enter_context(MemoryLeader(log, faults))
        chunks = read(leader, start_offset, end_offset, max_bytes=max_bytes)
    if start_offset == end_offset:
        assert chunks == []
        return
    assert chunks[0].start_offset == start_offset
    assert all(a.next_offset == b.start_offset for a, b in pairwise(chunks))
    reached = chunks[-1].next_offset
    assert reached >= end_offset
    found = base_offsets(piece for chunk in chunks for piece in chunk.committed())
    assert found == log.committed_within(start_offset, reached)


def filled(batches=400, record_count=3, padding=100):
    log = MemoryLog()
    for _ in range(batches):
        log.data(-1, record_count, padding)
    return log


def test_several_are_in_flight_and_equal_batches_are_fetched_once():
    with in_flight(6), MemoryLeader(filled()) as leader:
        chunks = read(leader, 0, 1200, max_bytes=4000)
        assert leader.most_in_flight == 6
        # 23 batches of 169 bytes a fetch.
        assert [chunk.start_offset for chunk in chunks] == list(range(0, 1200, 69))
        assert len(leader.requests) == len(chunks)


def test_what_is_in_flight_is_dropped_by_a_reader_that_stops():
    with in_flight(6), MemoryLeader(filled()) as leader:
        chunks = read_range(leader, T0, 0, 1200, max_bytes=4000)
        next(chunks)
        assert leader.most_in_flight == 6
        chunks.close()


def test_a_hole_is_filled_without_fetching_again_what_lies_behind_it():
    log = MemoryLog()
    for padding in [100] * 60 + [400] * 60 + [100] * 60:
        log.data(-1, 3, padding)
    with in_flight(5), MemoryLeader(log) as leader:
        mock_least = mock.patch.object(fetch_window, "LEAST_FETCH_BYTES", 1)
        with mock_least:
            chunks = read(leader, 0, log.end_offset, max_bytes=4000)
        assert base_offsets(chunk.records for chunk in chunks) == list(range(0, 540, 3))
        asked = sum(request.max_bytes for request in leader.requests)
    assert asked < 2.5 * sum(len(batch) for batch in log.batches)


def test_a_log_that_lost_its_beginning_is_an_error_where_it_is_met():
    """What was on its way is still handed out; nothing is skipped."""
    log = filled()
    with in_flight(3), MemoryLeader(log) as leader:
        chunks = read_range(leader, T0, 0, 1200, max_bytes=4000)
        found = [next(chunks)]
        leader.log_start_offset = 900
        with (
            mock.patch.object(log, "answer", _gone),
            pytest.raises(OffsetOutOfRangeError, match="offset 69 is out of range") as raised,
        ):
            found.extend(chunks)
        assert raised.value.log_start_offset == 900
    assert [chunk.next_offset for chunk in found] == [69]


def _gone(request):
    (asked,) = request.partitions
    answer = MemoryLog().answer(request)
    return answer._replace(error_code=int(ErrorCode.OFFSET_OUT_OF_RANGE), topic=asked.topic)


PLACES = [
    (Cursor, "add"),
    (InFlight, "__init__"),
    (InFlight, "wait"),
    (_Connection, "receive"),
]


@pytest.mark.parametrize(("cls", "method"), PLACES)
def test_an_exception_of_a_signal_handler_between_two_steps_costs_no_batch(cls, method):
    """Answers that nobody waits for any more are not taken for those of later fetches."""
    real = getattr(cls, method)
    calls = itertools.count()

    def interrupted(*arguments, **named):
        if next(calls) in (2, 5, 9):
            raise KeyboardInterrupt
        return real(*arguments, **named)

    log = filled()
    with in_flight(4), MemoryLeader(log) as leader, mock.patch.object(cls, method, interrupted):
        reader = BatchFetcher(leader, {T0: (0, log.end_offset)}, max_bytes=4000)
        chunks, interruptions = [], 0
        while not reader.done:
            try:
                chunks += reader.poll(1000)
            except KeyboardInterrupt:
                interruptions += 1
        reader.close()
    assert interruptions == 3
    assert base_offsets(chunk.records for chunk in chunks) == list(range(0, log.end_offset, 3))
