"""Columns of typed topics are fetched whole, once and in order, also where a leader skips batches:
a gap in what it sends is no gap in what was read.
"""

import threading

import pytest

from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.core.errors import CorruptRecordError, LogTruncatedError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.client.fake_cluster import FakePartition
from storage_engine.tests.client.fetching.ranges import read_range
from storage_engine.tests.client.support.typed_topics import (
    BATCHES,
    ROWS,
    ROWS_IN_BATCH,
    append_numbered,
    reading_of,
)

T0 = TopicPartition("t", 0)


def ids(reading, chunks, end_offset=None):
    found = []
    for chunk in chunks:
        for rows in reading.rows(chunk, end_offset=end_offset):
            found += rows.batch.column("id").to_pylist()
    return found


def ids_of(batches):
    return [
        number
        for batch in batches
        for number in range(batch * ROWS_IN_BATCH, (batch + 1) * ROWS_IN_BATCH)
    ]


@pytest.mark.parametrize("most_in_flight", [0, 16])
@pytest.mark.parametrize("max_bytes", [10, 1000, 1 << 20])
@pytest.mark.parametrize(
    ("columns", "where", "batches"),
    [
        (None, None, BATCHES),
        (["id"], None, BATCHES),
        (["id", "tag"], "fare >= 20 AND fare < 23", range(20, 23)),
        (["id"], "fare > 1000", ()),
    ],
)
def test_a_range_is_read_whole_and_in_order_however_it_is_sent(
    typed, cluster, most_in_flight, max_bytes, columns, where, batches
):
    reading = reading_of(typed, columns, where)
    chunks = list(
        read_range(
            cluster,
            T0,
            0,
            ROWS,
            max_bytes=max_bytes,
            most_in_flight=most_in_flight,
            typed_want=reading.want,
        )
    )
    assert ids(reading, chunks) == ids_of(batches)
    assert [chunk.start_offset for chunk in chunks[1:]] == [c.next_offset for c in chunks[:-1]]
    assert chunks[-1].next_offset == ROWS


def test_a_range_within_batches_has_only_its_rows(typed, cluster):
    reading = reading_of(typed, ["id"], "fare >= 2 AND fare <= 4")
    chunks = read_range(cluster, T0, 25, 43, typed_want=reading.want)
    assert ids(reading, chunks, end_offset=43) == list(range(25, 43))


@pytest.mark.parametrize("where", [None, "fare >= 40", "fare < 10"])
def test_a_leader_that_moves_and_one_that_dies_are_followed(typed, cluster, where):
    reading = reading_of(typed, ["id"], where)
    chunks = read_range(cluster, T0, 0, ROWS, max_bytes=500, typed_want=reading.want)
    found = []
    for count, chunk in enumerate(chunks):
        found += ids(reading, [chunk])
        if count == 2:
            victim = typed.partition("t").leader
            threading.Timer(0.2, typed.start_broker, (victim, typed.stop_broker(victim))).start()
        elif count % 3 == 1:
            typed.move_leader("t", 0, count % 2 + 2)
    expected = {None: BATCHES, "fare >= 40": range(40, 60), "fare < 10": range(10)}[where]
    assert found == ids_of(expected)


@pytest.mark.parametrize("where", [None, "fare < 0"])
def test_a_log_that_lost_what_was_skipped_or_read_is_noticed(typed, cluster, where):
    reading = reading_of(typed, ["id"], where)
    reader = BatchFetcher(cluster, {T0: (0, None)}, typed_wants={"t": reading.want})
    try:
        while reader.position(T0) < ROWS:
            reader.poll(1000)
        typed.partition("t").lose_from(30)
        typed.move_leader("t", 0, 2)
        append_numbered(typed, "t", range(100, 150))
        typed.wake()
        with pytest.raises(LogTruncatedError) as caught:
            for _ in range(20):
                reader.poll(200)
        assert caught.value.truncation_offset == 300
    finally:
        reader.close()


@pytest.mark.parametrize("most_in_flight", [0, 16])
def test_damaged_frames_end_the_reading_and_give_no_row(
    typed, cluster, monkeypatch, most_in_flight
):
    reading = reading_of(typed, ["id"])
    read = FakePartition.read
    monkeypatch.setattr(
        FakePartition, "read", lambda self, asked, schema: b"\0" + read(self, asked, schema)
    )
    chunks = read_range(
        cluster, T0, 0, ROWS, typed_want=reading.want, most_in_flight=most_in_flight
    )
    with pytest.raises(CorruptRecordError, match=r"frame at byte \d+ of an answer with columns"):
        list(chunks)
