"""Columns of typed topics are fetched whole, once and in order, also where a leader skips batches:
a gap in what it sends is no gap in what was read.
"""

import threading
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.bulk_reader import BulkReader
from storage_engine.client.fetching.fetch import BatchFetcher
from storage_engine.client.fetching.fetched_batches import WholeBatches, committed, without_read
from storage_engine.client.fetching.typed_reading import Selection, TypedReading
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.errors import (
    ConfigError,
    CorruptRecordError,
    HeadraceError,
    LogTruncatedError,
    UnsupportedVersionError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_table import TransactionMarker
from storage_engine.core.typed.topic_schema import UnknownSchemaVersionError
from storage_engine.protocol.apis import describe_schemas
from storage_engine.protocol.records.control_record import encode_marker
from storage_engine.protocol.records.record_batch import patch
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded
from storage_engine.tests.client.fake_cluster import FakePartition
from storage_engine.tests.client.fetching.ranges import read_range
from storage_engine.tests.client.typed_topics import (
    ROWS_IN_BATCH,
    SCHEMA,
    WIDER,
    add_typed_topic,
    append_numbered,
    typed_batch,
)
from storage_engine.tests.protocol.typed.in_memory import project

T0 = TopicPartition("t", 0)
BATCHES = 60
ROWS = BATCHES * ROWS_IN_BATCH
ALL = range(BATCHES)


@pytest.fixture
def filled(fake):
    """Topic t: a partition, led by broker 1, whose batches have 10 rows each."""
    add_typed_topic(fake, "t", [1])
    append_numbered(fake, "t", ALL)
    return fake


def reading_of(fake, columns=None, where=None):
    return TypedReading(
        "t", KnownSchema(fake.topic_ids["t"], fake.schemas["t"]), Selection.of(columns, where)
    )


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
        (None, None, ALL),
        (["id"], None, ALL),
        (["id", "tag"], "fare >= 20 AND fare < 23", range(20, 23)),
        (["id"], "fare > 1000", ()),
    ],
)
def test_a_range_is_read_whole_and_in_order_however_it_is_sent(
    filled, cluster, most_in_flight, max_bytes, columns, where, batches
):
    reading = reading_of(filled, columns, where)
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


def test_a_range_within_batches_has_only_its_rows(filled, cluster):
    reading = reading_of(filled, ["id"], "fare >= 2 AND fare <= 4")
    chunks = read_range(cluster, T0, 25, 43, typed_want=reading.want)
    assert ids(reading, chunks, end_offset=43) == list(range(25, 43))


@pytest.mark.parametrize("where", [None, "fare >= 40", "fare < 10"])
def test_a_leader_that_moves_and_one_that_dies_are_followed(filled, cluster, where):
    reading = reading_of(filled, ["id"], where)
    chunks = read_range(cluster, T0, 0, ROWS, max_bytes=500, typed_want=reading.want)
    found = []
    for count, chunk in enumerate(chunks):
        found += ids(reading, [chunk])
        if count == 2:
            victim = filled.partition("t").leader
            threading.Timer(0.2, filled.start_broker, (victim, filled.stop_broker(victim))).start()
        elif count % 3 == 1:
            filled.move_leader("t", 0, count % 2 + 2)
    expected = {None: ALL, "fare >= 40": range(40, 60), "fare < 10": range(10)}[where]
    assert found == ids_of(expected)


@pytest.mark.parametrize("where", [None, "fare < 0"])
def test_a_log_that_lost_what_was_skipped_or_read_is_noticed(filled, cluster, where):
    reading = reading_of(filled, ["id"], where)
    reader = BatchFetcher(cluster, {T0: (0, None)}, typed_wants={"t": reading.want})
    try:
        while reader.position(T0) < ROWS:
            reader.poll(1000)
        filled.partition("t").lose_from(30)
        filled.move_leader("t", 0, 2)
        append_numbered(filled, "t", range(100, 150))
        filled.wake()
        with pytest.raises(LogTruncatedError) as caught:
            for _ in range(20):
                reader.poll(200)
        assert caught.value.truncation_offset == 300
    finally:
        reader.close()


def test_a_broker_without_schemas_is_never_asked_for_columns(filled):
    reading = reading_of(filled, ["id"])
    del filled.api_versions[describe_schemas.API.key]
    with (
        Cluster(filled.bootstrap_servers, deadline_ms=2000) as cluster,
        pytest.raises(UnsupportedVersionError, match="serves DescribeSchemas not at all"),
    ):
        list(read_range(cluster, T0, 0, ROWS, typed_want=reading.want))
    assert filled.count("Fetch") == 0


@pytest.mark.parametrize("most_in_flight", [0, 16])
def test_damaged_frames_end_the_reading_and_give_no_row(
    filled, cluster, monkeypatch, most_in_flight
):
    reading = reading_of(filled, ["id"])
    read = FakePartition.read
    monkeypatch.setattr(
        FakePartition, "read", lambda self, asked, schema: b"\0" + read(self, asked, schema)
    )
    chunks = read_range(
        cluster, T0, 0, ROWS, typed_want=reading.want, most_in_flight=most_in_flight
    )
    with pytest.raises(CorruptRecordError, match=r"frame at byte \d+ of an answer with columns"):
        list(chunks)


# --- splits ---


def bulk(fake) -> BulkReader:
    return BulkReader({"bootstrap.servers": fake.bootstrap_servers})


def test_a_split_has_the_columns_of_its_version_whatever_the_schema_becomes(filled):
    with bulk(filled) as reader:
        splits = reader.splits(["t"], split_offsets=250)
        assert [(split.start_offset, split.schema_version) for split in splits] == [
            (0, 1),
            (200, 1),
            (400, 1),
        ]
        filled.schemas["t"] = WIDER
        for _ in range(2):
            table = pa.Table.from_batches(reader.read(splits[1]))
            assert table.column_names == ["id", "tag", "fare"]
            assert table["id"].to_pylist() == list(range(200, 400))
        assert reader.splits(["t"])[0].schema_version == 2


def test_a_split_is_projected_and_filtered_with_columns_about_its_rows(filled):
    with bulk(filled) as reader:
        (split,) = reader.splits(["t"])
        selection = {"columns": ["_offset", "ID", "_partition", "_topic"], "where": "fare = 7.0"}
        table = pa.Table.from_batches(reader.read(split, **selection))
        assert table.schema == reader.arrow_schema(split, **selection)
        assert table.to_pylist() == [
            {"_offset": n, "id": n, "_partition": 0, "_topic": "t"} for n in range(70, 80)
        ]


def test_a_version_that_the_asked_broker_had_not_heard_of_is_asked_for_again(filled):
    batch = typed_batch(filled.topic_ids["t"], {"id": [1], "note": ["new"]}, WIDER)
    filled.partition("t").append(batch)
    with bulk(filled) as reader:
        (split,) = reader.splits(["t"])
        filled.schemas["t"] = WIDER
        numbers = [n for rows in reader.read(split, columns=["id"]) for n in rows["id"].to_pylist()]
        assert numbers == [*range(ROWS), 1]
        (split,) = reader.splits(["t"])
        filled.schemas["t"] = WIDER
        table = pa.Table.from_batches(reader.read(split))
        assert table["note"].null_count == ROWS


def test_a_split_whose_topic_changed_under_it_is_to_be_made_anew(filled):
    batch = typed_batch(filled.topic_ids["t"], {"id": [1], "note": ["new"]}, WIDER)
    filled.partition("t").append(batch)
    with bulk(filled) as reader:
        (split,) = reader.splits(["t"])
        filled.schemas["t"] = WIDER
        with pytest.raises(HeadraceError, match="changed while it was divided into splits"):
            list(reader.read(split))


def test_a_version_that_no_broker_tells_is_an_error(filled, monkeypatch):
    monkeypatch.setattr("storage_engine.client.fetching.bulk_reader.SCHEMA_WAIT_MS", 200)
    batch = typed_batch(filled.topic_ids["t"], {"id": [1], "note": ["new"]}, WIDER)
    filled.partition("t").append(batch)
    with bulk(filled) as reader:
        (split,) = reader.splits(["t"])
        with pytest.raises(UnknownSchemaVersionError, match="rows have version 2 of its schema"):
            list(reader.read(split))


@pytest.mark.parametrize(
    ("selection", "complaint"),
    [
        ({"columns": ["idd"]}, "idd"),
        ({"columns": []}, "columns is empty"),
        ({"columns": "id"}, r"give \['id'\]"),
        ({"columns": ["id", "Id"]}, "has 'Id' twice"),
        ({"columns": ["_ofset"]}, "_ofset"),
        ({"where": "fare >"}, "condition"),
        ({"where": "nothing = 1"}, "nothing"),
    ],
)
def test_wrong_columns_and_conditions_are_told_before_anything_is_read(
    filled, selection, complaint
):
    with bulk(filled) as reader:
        (split,) = reader.splits(["t"])
        with pytest.raises(ConfigError, match=complaint) as caught:
            list(reader.read(split, **selection))
        assert "\n" not in str(caught.value)
    assert filled.count("Fetch") == 0


def test_records_have_no_columns_to_choose(fake):
    fake.add_topic("t", [1])
    with bulk(fake) as reader:
        fake.partition("t").end_offset = 1
        (split,) = reader.splits(["t"])
        with pytest.raises(ConfigError, match="topic 't' has no schema"):
            list(reader.read(split, columns=["id"]))


# --- transactions ---

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
