"""Fetched batches of typed topics become rows with the columns of the query."""

from uuid import UUID

import pyarrow as pa
import pytest

from connector.errors import ConnectorError
from connector.options.source_options import parse_source_options
from connector.source.offset_range import OffsetRange
from connector.source.typed import typed_decoding
from connector.source.typed.typed_decoding import TypedDecoding
from connector.source.typed.typed_read import plan_read
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.topic_schemas import KnownSchema
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.records.record_batch import patch
from storage_engine.protocol.typed.projection import WANT_FRAMES, WANT_STORED
from storage_engine.protocol.typed.typed_encoder import iter_typed
from storage_engine.tests.protocol.typed.in_memory import project

T0 = TopicPartition("t", 0)
ID = UUID(int=7)
V1 = new_schema(parse_ddl("id BIGINT NOT NULL, fare FLOAT"), ["id"])
V2 = V1.evolved(parse_ddl("id BIGINT NOT NULL, fare FLOAT, tag STRING"))
OPTIONS = parse_source_options({"bootstrap.servers": "h:1", "subscribe": "t"})


def _rows(first, count, **more):
    table = pa.table(
        {
            "id": pa.array(range(first, first + count), pa.int64()),
            "fare": pa.array([float(n) for n in range(count)], pa.float32()),
            **{name: pa.array([value] * count) for name, value in more.items()},
        }
    )
    return table.combine_chunks().to_batches()[0]


def _encoded(schema, first, rows):
    (encoded,) = iter_typed(rows, schema, schema.latest, ID, now_ms=5)
    data = bytearray(encoded.data)
    patch(data, 0, base_offset=first, leader_epoch=0)
    return bytes(data)


LOG = _encoded(V1, 0, _rows(0, 10)) + _encoded(V2, 10, _rows(10, 10, tag="x"))


def _decoding(schema=V1, **asked):
    asked = {"chosen": None, "where": None, "user_schema": None} | asked
    return TypedDecoding(OPTIONS, plan_read({"t": KnownSchema(ID, schema)}, **asked))


def _fetched(decoding, log=LOG, schema=V2, start=0):
    wanted = OffsetRange(topic_partition=T0, start_offset=start, end_offset=20, topic_id=ID)
    want = decoding.wanted([wanted])["t"]
    data = log
    if want.mode == WANT_FRAMES:
        found = project(memoryview(log), want, schema, limit_bytes=1 << 20)
        data = b"".join(bytes(piece) for piece in found.pieces)
    return FetchedBatches(T0, memoryview(data), start, 20, 20, 20, 0, (), 0, want), wanted


def _alone(decoding, **fetch):
    fetched, wanted = _fetched(decoding, **fetch)
    rows, ends = [], []
    for batches, next_offset in decoding.alone([fetched], wanted):
        rows += [row for batch in batches for row in batch.to_pylist()]
        ends.append(next_offset)
    return rows, ends


@pytest.fixture
def schemas(monkeypatch):
    """The schemas that the brokers know."""
    known = {"t": KnownSchema(ID, V2)}
    monkeypatch.setattr(
        typed_decoding,
        "known_schemas",
        lambda options, topics, *, refresh: {topic: known[topic] for topic in topics},
    )
    return known


def test_old_rows_have_null_in_a_column_that_came_later():
    rows, ends = _alone(_decoding(V2))
    assert [row["tag"] for row in rows] == [None] * 10 + ["x"] * 10
    assert [row["id"] for row in rows] == list(range(20))
    assert ends[-1] == 20


def test_a_running_query_keeps_its_columns_when_rows_of_a_newer_version_come(schemas):
    rows, _ = _alone(_decoding(V1))
    assert [row["id"] for row in rows] == list(range(20))
    assert all(row.keys() == {"id", "fare"} for row in rows)


def test_a_topic_that_was_created_again_meanwhile_is_not_taken_for_the_one_before(schemas):
    schemas["t"] = KnownSchema(UUID(int=8), V2)
    with pytest.raises(ConnectorError, match="'t' was deleted, and is another one now"):
        _alone(_decoding(V1))


def test_only_the_columns_that_are_read_are_asked_for_and_all_of_them_as_they_are_stored():
    assert _fetched(_decoding(V2))[0].typed_want.mode == WANT_STORED
    want = _fetched(_decoding(V2, chosen=("tag", "_offset")))[0].typed_want
    assert (want.mode, want.column_ids) == (WANT_FRAMES, (3,))


def test_rows_have_the_place_they_come_from_where_it_is_asked_for():
    rows, _ = _alone(_decoding(V2, chosen=("_partition", "id", "_topic", "_offset")), start=18)
    assert rows == [
        {"_partition": 0, "id": 18, "_topic": "t", "_offset": 18},
        {"_partition": 0, "id": 19, "_topic": "t", "_offset": 19},
    ]


def test_a_condition_skips_batches_and_drops_rows_and_what_was_skipped_counts_as_read():
    rows, ends = _alone(_decoding(V2, chosen=("id",), where="id >= 17"))
    assert [row["id"] for row in rows] == [17, 18, 19]
    rows, ends = _alone(_decoding(V2, chosen=("id",), where="id > 100"))
    assert (rows, ends[-1]) == ([], 20)


def test_pieces_of_several_partitions_go_to_spark_in_one():
    decoding = _decoding(V2, chosen=("id", "_partition"))
    fetched, _ = _fetched(decoding)
    other = fetched._replace(tp=TopicPartition("t", 1))
    ends = {T0: 20, other.tp: 5}
    (batch,) = decoding.together([fetched, other], ends)
    assert batch.column("_partition").to_pylist() == [0] * 20 + [1] * 5


def _parts_of_a_log(count):
    """Fetches of ten rows each, one after the other, of which the brokers sent all."""
    decoding = _decoding()
    wanted = OffsetRange(topic_partition=T0, start_offset=3, end_offset=10 * count, topic_id=ID)
    want = decoding.wanted([wanted])["t"]
    fetches = [
        FetchedBatches(
            T0,
            memoryview(_encoded(V1, first, _rows(first, 10))),
            max(first, 3),
            first + 10,
            10 * count,
            10 * count,
            0,
            (),
            0,
            want,
        )
        for first in range(0, 10 * count, 10)
    ]
    return decoding, fetches, wanted


def test_fetches_that_are_small_go_to_spark_in_one_piece():
    decoding, fetches, wanted = _parts_of_a_log(4)
    found = [([*batches], end) for batches, end in decoding.alone(iter(fetches), wanted)]
    assert [end for _, end in found] == [40, 40]
    ((batch,), _), (nothing, _) = found
    assert batch.column("id").to_pylist() == list(range(3, 40))
    assert nothing == []


def test_fetches_are_held_up_to_so_many_bytes(monkeypatch):
    decoding, fetches, wanted = _parts_of_a_log(5)
    monkeypatch.setattr(typed_decoding, "GROUP_BYTES", 2 * len(fetches[0].records))
    asked = []

    def one_by_one():
        for each in fetches:
            asked.append(each.next_offset)
            yield each

    ends, seen = [], []
    for batches, end in decoding.alone(one_by_one(), wanted):
        ends += [end] * sum(len(batch) > 0 for batch in batches)
        seen.append(len(asked))
    assert ends == [20, 40, 50]
    assert seen == [2, 2, 4, 4, 5, 5]


def test_what_came_before_an_error_is_given():
    decoding, fetches, wanted = _parts_of_a_log(3)

    def broken():
        yield from fetches[:2]
        raise KafkaError("gone", ErrorCode.NOT_LEADER_OR_FOLLOWER)

    found = []
    with pytest.raises(KafkaError):
        for batches, end in decoding.alone(broken(), wanted):
            found.append((sum(map(len, batches)), end))
    assert found == [(17, 20), (0, 20)]
