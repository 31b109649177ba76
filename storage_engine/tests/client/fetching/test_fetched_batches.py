"""Rows of committed transactions are the same in frames and in whole batches."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from storage_engine.client.fetching.fetched_batches import WholeBatches
from storage_engine.client.fetching.typed_reading import Selection, TypedReading
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.protocol.fetched_parts import committed, without_read
from storage_engine.protocol.records.control_record import encode_marker
from storage_engine.protocol.records.record_batch import patch
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded
from storage_engine.tests.client.support.typed_topics import SCHEMA, typed_batch
from storage_engine.tests.protocol.typed.in_memory import project

TOPIC_ID = UUID(int=9)

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("rows"), st.integers(0, 2), st.integers(0, 3)),
        st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 2), st.just(0)),
    ),
    max_size=12,
)


class TransactionalLog:
    """Batches of three producers, of which one has no transactions; the broker's list of aborted
    ones."""

    def __init__(self, events) -> None:
        self.content = bytearray()
        self.offset = 0
        self.aborted: list[tuple[int, int]] = []
        self.committed: list[tuple[int, float]] = []
        self._open: dict[int, list[tuple[int, int, float]]] = {}
        for kind, producer, fare in events:
            if kind == "rows":
                self._rows(producer, float(fare))
            elif producer and producer in self._open:
                self._end(producer, commits=kind == "commit")
        for producer in list(self._open):
            self._end(producer, commits=False)
        self.committed.sort()

    def _rows(self, producer: int, fare: float) -> None:
        rows = {"id": [self.offset, self.offset + 1], "fare": [fare, fare]}
        settings = {}
        if producer:
            settings = {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
        batch = typed_batch(TOPIC_ID, rows, transactional=bool(producer), **settings)
        found = (self.offset, self.offset + 1)
        if producer:
            self._open.setdefault(producer, []).append((*found, fare))
        else:
            self.committed += [(n, fare) for n in found]
        self._add(batch, 2)

    def _end(self, producer: int, *, commits: bool) -> None:
        rows = self._open.pop(producer)
        if commits:
            self.committed += [(n, fare) for first, last, fare in rows for n in (first, last)]
        else:
            self.aborted.append((producer, rows[0][0]))
        marker = TransactionMarker(commits=commits, coordinator_epoch=0)
        self._add(bytes(encode_marker(producer, 0, marker, timestamp_ms=0)), 1)

    def _add(self, batch: bytes, count: int) -> None:
        data = bytearray(batch)
        patch(data, 0, base_offset=self.offset, leader_epoch=self.offset)
        self.content += data
        self.offset += count


@given(EVENTS, st.integers(0, 3), st.integers(0, 30))
def test_committed_rows_are_the_same_in_frames_and_whole_from_any_offset_on(events, fare, start):
    log = TransactionalLog(events)
    known = KnownSchema(TOPIC_ID, SCHEMA)
    reading = TypedReading("t", known, Selection.of(["id"], f"fare = {fare}"))
    projected = project(memoryview(bytes(log.content)), reading.want, SCHEMA, limit_bytes=1 << 20)
    frames = memoryview(b"".join(projected.pieces))
    whole = WholeBatches.of(frames, framed=True)
    if whole is None:
        assert not log.content
        return
    assert (whole.next_offset, whole.last_epoch) == _last_of(log.content)
    left, aborted = without_read(frames, log.aborted, start, framed=True)
    found = [
        number
        for rows in iter_typed_decoded(
            committed(left, aborted, framed=True),
            reading.plan,
            start_offset=start,
            framed=True,
            topic_schema=SCHEMA,
        )
        for number in rows.batch.column("id").to_pylist()
    ]
    assert found == [n for n, of in log.committed if of == fare and n >= start]


def _last_of(content):
    whole = WholeBatches.of(memoryview(content))
    assert whole is not None
    return whole.next_offset, whole.last_epoch
