"""`poll_table` on topics with a schema: what is handed out, and where the consumer stands."""

import asyncio

import pyarrow as pa
import pytest

from storage_engine.client import AsyncConsumer, Consumer
from storage_engine.core.errors import ConfigError, CorruptRecordError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.apis import describe_schemas
from storage_engine.protocol.typed.frames import FIXED_AT, frame_bounds
from storage_engine.tests.client.fake_cluster import FakePartition
from storage_engine.tests.client.support.batches import append_records
from storage_engine.tests.client.support.typed_topics import (
    ROWS_IN_BATCH,
    WIDER,
    add_typed_topic,
    append_numbered,
    typed_batch,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
ROWS = 30
LENGTH_AT = 8
"""In the header of a batch."""


@pytest.fixture
def filled(fake):
    """Topic t: two partitions with 30 rows each, of one leader: one answer has both."""
    add_typed_topic(fake, "t", [1, 1])
    append_numbered(fake, "t", range(3))
    append_numbered(fake, "t", range(3), partition=1)
    return fake


@pytest.fixture
def consumer(filled):
    config = {
        "bootstrap.servers": filled.bootstrap_servers,
        "auto.offset.reset": "earliest",
        "default.api.timeout.ms": 3000,
        "fetch.max.wait.ms": 100,
    }
    with Consumer(config) as made:
        yield made


def polled(consumer, rows, **selection):
    """Tables until so many rows are there."""
    tables: list[pa.Table] = []
    for _ in range(50):
        if sum(table.num_rows for table in tables) >= rows:
            break
        tables.append(consumer.poll_table(200, **selection))
    return pa.concat_tables(table for table in tables if table.num_rows)


def test_all_columns_come_in_the_order_of_the_schema(consumer):
    consumer.assign([T0])
    table = polled(consumer, ROWS)
    assert table.column_names == ["id", "tag", "fare"]
    assert table["id"].to_pylist() == list(range(ROWS))
    assert consumer.position(T0) == ROWS


def test_named_columns_come_in_the_order_in_which_they_are_named(consumer):
    consumer.assign([T0, T1])
    names = ["_offset", "fare", "_partition", "_topic", "_timestamp", "_headers", "_deleted"]
    table = polled(consumer, 2 * ROWS, columns=names)
    assert table.column_names == names
    assert set(table["_partition"].to_pylist()) == {0, 1}
    assert table["_deleted"].to_pylist() == [False] * 2 * ROWS


def test_rows_that_where_leaves_out_count_as_read(consumer):
    consumer.assign([T0])
    table = polled(consumer, ROWS_IN_BATCH, columns=["id"], where="fare = 1.0")
    assert table["id"].to_pylist() == list(range(10, 20))
    assert consumer.poll_table(200, columns=["id"], where="fare = 1.0").num_rows == 0
    assert consumer.position(T0) == ROWS


def test_an_empty_table_has_the_columns_too(consumer):
    consumer.assign([T0])
    table = consumer.poll_table(300, columns=["fare", "_offset"], where="fare < 0")
    assert table.schema == pa.schema([("fare", pa.float64()), ("_offset", pa.int64())])
    assert table.num_rows == 0


def test_other_columns_go_on_where_the_ones_before_ended(filled, consumer):
    consumer.assign([T0])
    consumer.seek(T0, 5)
    first = polled(consumer, 1, columns=["id"], where="id < 12")
    assert first["id"].to_pylist() == list(range(5, 12))
    # What `where` left out behind them has been read.
    append_numbered(filled, "t", range(3, 5))
    second = polled(consumer, 1, columns=("_offset", "id"))
    assert second["_offset"].to_pylist() == list(range(ROWS, ROWS + 20))


def test_records_and_columns_may_be_taken_by_turns(filled, consumer):
    """The fake sends typed batches to whoever wants records: only untyped topics are both."""
    filled.add_topic("u", [1])
    append_records(filled, [b"a", b"b", b"c"], "u")
    consumer.assign([U0])
    assert [record.value for record in consumer.poll(1000, 1)] == [b"a"]
    assert polled(consumer, 2)["value"].to_pylist() == [b"b", b"c"]
    consumer.seek_to_beginning()
    assert next(consumer).value == b"a"
    assert polled(consumer, 2)["value"].to_pylist() == [b"b", b"c"]


def test_a_column_that_is_added_comes_with_the_first_row_that_has_it(filled, consumer):
    consumer.assign([T0])
    assert polled(consumer, ROWS).column_names == ["id", "tag", "fare"]
    filled.schemas["t"] = WIDER
    batch = typed_batch(filled.topic_ids["t"], {"id": [99], "note": ["new"]}, WIDER)
    filled.partition("t").append(batch)
    filled.wake()
    table = polled(consumer, 1)
    assert table.to_pylist() == [{"id": 99, "tag": None, "fare": None, "note": "new"}]


def test_a_new_column_may_be_named_before_a_row_has_it(filled, consumer):
    consumer.assign([T0])
    polled(consumer, ROWS)
    filled.schemas["t"] = WIDER
    consumer.seek_to_beginning()
    table = polled(consumer, ROWS, columns=["id", "note"], where="note IS NULL")
    assert table["note"].null_count == ROWS


def test_a_version_that_brokers_tell_late_is_waited_for_and_no_row_is_lost(filled, consumer):
    consumer.assign([T0, T1])
    batch = typed_batch(filled.topic_ids["t"], {"id": [99], "note": ["new"]}, WIDER)
    filled.partition("t").append(batch)
    append_numbered(filled, "t", range(3, 5))
    found = [n for table in (consumer.poll_table(300),) for n in table["id"].to_pylist()]
    assert 99 not in found
    filled.schemas["t"] = WIDER
    rest = polled(consumer, 2 * ROWS + 21 - len(found), columns=None)
    assert sorted(found + rest["id"].to_pylist()) == sorted([*range(50), *range(ROWS), 99])


def test_brokers_without_schemas_have_records(filled, consumer):
    del filled.api_versions[describe_schemas.API.key]
    filled.add_topic("u", [1])
    append_records(filled, [b"a"], "u")
    consumer.assign([U0])
    assert polled(consumer, 1)["value"].to_pylist() == [b"a"]
    with pytest.raises(ConfigError, match="topic 'u' has no schema"):
        consumer.poll_table(200, columns=["value"])


def test_a_topic_that_is_made_anew_under_its_name_is_read_by_its_own_schema(filled, consumer):
    consumer.assign([T0])
    polled(consumer, ROWS)
    filled.create_again("t", [2])
    filled.schemas["t"] = new_schema(parse_ddl("other STRING"), [])
    batch = typed_batch(filled.topic_ids["t"], {"other": ["x"] * 40}, filled.schemas["t"])
    filled.partition("t").append(batch)
    filled.wake()
    assert polled(consumer, 10).to_pylist() == [{"other": "x"}] * 10


@pytest.mark.parametrize("where", [None, "fare >= 0"])
def test_columns_are_read_on_where_the_log_was_truncated_or_begins_later(filled, consumer, where):
    consumer.assign([T0])
    polled(consumer, ROWS, columns=["id"], where=where)
    filled.partition("t").lose_from(2)
    filled.move_leader("t", 0, 2)
    append_numbered(filled, "t", range(7, 9))
    filled.wake()
    expected = list(range(70, 90))
    assert polled(consumer, 20, columns=["id"], where=where)["id"].to_pylist() == expected
    partition = filled.partition("t")
    partition.start_offset = 30
    del partition.batches[:3]
    consumer.seek(T0, 0)
    assert polled(consumer, 10, columns=["id"], where=where)["id"].to_pylist() == expected[10:]


def test_topics_that_are_read_together_need_the_same_columns(filled, consumer):
    add_typed_topic(filled, "u", [1])
    filled.schemas["u"] = new_schema(parse_ddl("id BIGINT, other STRING"), [])
    batch = typed_batch(filled.topic_ids["u"], {"id": [7]}, filled.schemas["u"])
    filled.partition("u").append(batch)
    consumer.assign([T0, U0])
    with pytest.raises(ConfigError, match="topics 't' and 'u' can't be read into one table"):
        consumer.poll_table(500)
    table = polled(consumer, ROWS + 1, columns=["_topic", "id"])
    assert set(table["_topic"].to_pylist()) == {"t", "u"}


def test_records_and_columns_do_not_go_into_one_table(filled, consumer):
    filled.add_topic("u", [1])
    append_records(filled, [b"a"], "u")
    consumer.assign([T0, U0])
    with pytest.raises(ConfigError, match="'u' records without a schema"):
        consumer.poll_table(500)
    with pytest.raises(ConfigError, match="topic 'u' has no schema"):
        consumer.poll_table(500, columns=["id"])


@pytest.mark.parametrize("selection", [{"columns": ["ids"]}, {"where": "id LIKE 'x'"}])
def test_what_a_topic_does_not_have_is_told_and_reading_goes_on(consumer, selection):
    consumer.assign([T0])
    for _ in range(2):
        with pytest.raises(ConfigError):
            consumer.poll_table(200, **selection)
    assert polled(consumer, ROWS).num_rows == ROWS


def test_a_paused_partition_gives_no_rows_whatever_is_asked_for(consumer):
    consumer.assign([T0, T1])
    consumer.pause([T1])
    assert set(polled(consumer, ROWS, columns=["_partition"])["_partition"].to_pylist()) == {0}
    consumer.resume([T1])
    assert polled(consumer, ROWS, columns=["_partition", "id"]).num_rows == ROWS


def test_with_asyncio_rows_of_a_cancelled_poll_come_again(filled):
    async def read() -> list[int]:
        config = {"bootstrap.servers": filled.bootstrap_servers, "auto.offset.reset": "earliest"}
        async with AsyncConsumer(config) as consumer:
            await consumer.assign([T0])
            poll = asyncio.create_task(consumer.poll_table(1000, columns=["id"]))
            await asyncio.sleep(0)
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            found: list[int] = []
            while len(found) < ROWS:
                table = await consumer.poll_table(1000, columns=["id"])
                found += table["id"].to_pylist()
            return found

    assert asyncio.run(read()) == list(range(ROWS))


def test_rows_before_a_damaged_frame_are_handed_out_and_the_damage_is_told_each_time(
    consumer, monkeypatch
):
    """The last frame of the answer is good, so that the answer as a whole is taken."""
    read = FakePartition.read

    def damaged(self, asked, schema):
        records = bytearray(read(self, asked, schema))
        if asked.fetch_offset == 0:
            (_, second, _) = frame_bounds(memoryview(records))
            at = second[0] + FIXED_AT + LENGTH_AT
            records[at : at + 4] = (7).to_bytes(4)
        return bytes(records)

    monkeypatch.setattr(FakePartition, "read", damaged)
    consumer.assign([T0])
    assert polled(consumer, ROWS_IN_BATCH, columns=["id"])["id"].to_pylist() == list(range(10))
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            consumer.poll_table(200, columns=["id"])
    assert consumer.position(T0) == ROWS_IN_BATCH
