"""What does not fit a typed topic, is malformed or is a bomb: it gets its error and is not stored.
All other connections live on, its own too where it is no protocol error, and so does the broker."""

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from integration_tests.support.cluster_support import admin, create_topic, leader_of, wait_until
from integration_tests.typed_topics.test_columns_come_from_the_file import Asker
from storage_engine.core.errors import ErrorCode
from storage_engine.core.errors import KafkaError as OurError
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, new_schema
from storage_engine.protocol.apis import fetch, produce
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.apis.describe_schemas import DescribeSchemasRequest
from storage_engine.protocol.apis.wire import uvarint
from storage_engine.protocol.records.record_batch import HEADER_BYTES, read_header, seal
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.typed.directory import encode_directory, read_directory
from storage_engine.protocol.typed.projection import WANT_FRAMES, TypedWant
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.protocol.typed.typed_encoder import iter_typed

TOPIC = "typed-unharmed"
DDL = (
    "id BIGINT NOT NULL, small TINYINT, f FLOAT, d DECIMAL(5,2), s STRING, b BINARY, day DATE,"
    " at TIMESTAMP, local TIMESTAMP_NTZ, ok BOOLEAN, a ARRAY<INT NOT NULL>, m MAP<STRING, INT>,"
    " r STRUCT<x: INT NOT NULL>"
)
SCHEMA = new_schema(parse_ddl(DDL), ["id"])
GOOD = b'{"id": 1, "s": "good"}'

MISFITS: dict[str, tuple[bytes | None, bytes | None]] = {
    "no JSON": (None, b"no JSON"),
    "half an object": (None, b'{"id": 1'),
    "an array": (None, b'[{"id": 1}]'),
    "a number": (None, b"7"),
    "null": (None, b"null"),
    "nothing": (None, b""),
    "two objects": (None, b'{"id": 1}{"id": 2}'),
    "two lines": (None, b'{"id": 1}\n{"id": 2}'),
    "the rest of another": (None, b'{"id": 1}}\n{"record":{"id": 2}'),
    "no text": (None, b'{"id": 1, "s": "\xff"}'),
    "half a character": (None, b'{"id": 1, "s": "\\ud800"}'),
    "a missing key": (None, b'{"s": "x"}'),
    "a null key": (None, b'{"id": null}'),
    "an unknown column": (None, b'{"id": 1, "ids": 2}'),
    "a very long name": (None, b'{"id": 1, "%s": 2}' % (b"n" * 60_000)),
    "a column twice": (None, b'{"id": 1, "id": 1}'),
    "text for a number": (None, b'{"id": "1"}'),
    "a fraction for a number": (None, b'{"id": 1.5}'),
    "too large a number": (None, b'{"id": 9223372036854775808}'),
    "too large a small number": (None, b'{"id": 1, "small": 128}'),
    "too large a float": (None, b'{"id": 1, "f": 1e39}'),
    "a word for a float": (None, b'{"id": 1, "f": "nan"}'),
    "too many digits": (None, b'{"id": 1, "d": 1234.5}'),
    "too fine a decimal": (None, b'{"id": 1, "d": 1.234}'),
    "a number for text": (None, b'{"id": 1, "s": 1}'),
    "bad base64": (None, b'{"id": 1, "b": "a"}'),
    "a date that is none": (None, b'{"id": 1, "day": "2026-02-30"}'),
    "a time without its zone": (None, b'{"id": 1, "at": "2026-01-31T12:00:00"}'),
    "a local time with a zone": (None, b'{"id": 1, "local": "2026-01-31T12:00:00Z"}'),
    "a number for a boolean": (None, b'{"id": 1, "ok": 1}'),
    "an object for an array": (None, b'{"id": 1, "a": {}}'),
    "a null in an array": (None, b'{"id": 1, "a": [1, null]}'),
    "an array for a map": (None, b'{"id": 1, "m": [1]}'),
    "a map of text": (None, b'{"id": 1, "m": {"a": "x"}}'),
    "a name twice in a map": (None, b'{"id": 1, "m": {"a": 1, "a": 2}}'),
    "a missing part": (None, b'{"id": 1, "r": {}}'),
    "an unknown part": (None, b'{"id": 1, "r": {"x": 1, "y": 1}}'),
    "deep nesting": (None, b'{"id": ' + b"[" * 200_000),
    "deep nesting in a map": (None, b'{"id": 1, "m": ' + b'{"a":' * 100_000),
    "another key": (b"2", GOOD),
    "a key in another form": (b"01", GOOD),
    "a tombstone without a key": (None, None),
    "a tombstone of no key": (b"x", None),
}


@pytest.fixture(scope="module")
def topic(cluster) -> Iterator[Any]:
    """Brokers that have met nothing unforeseen in the end."""
    create_topic(cluster, TOPIC, config={SCHEMA_SETTING: SCHEMA.to_json()})
    before = unforeseen(cluster)
    yield cluster
    assert unforeseen(cluster) == before


def unforeseen(cluster: Any) -> list[str]:
    lines: list[str] = []
    for broker in cluster.state.brokers:
        path: Path = cluster.directory / broker.log_file
        lines += re.findall(r".*(?:Traceback|unexpected error|in this broker).*", path.read_text())
    return lines


@pytest.fixture
def errors() -> list[str]:
    """What happens to the connections of a producer."""
    return []


def producer(cluster: Any, errors: list[str], **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "retries": 0,
            "linger.ms": 0,
            "error_cb": lambda error: errors.append(str(error)),
            "log_level": 0,
            **more,
        }
    )


def ends(cluster: Any) -> tuple[int, int]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"}
    consumer = Consumer(settings)
    try:
        found = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
        assert found is not None
        return found
    finally:
        consumer.close()


def test_each_kind_of_misfit_is_refused_and_the_connection_lives_on(topic, errors):
    before = ends(topic)
    outcomes: list[Any] = []
    writer = producer(topic, errors)

    def send(key: bytes | None, value: bytes | None) -> Any:
        writer.produce(
            TOPIC, value, key=key, partition=0, on_delivery=lambda error, _: outcomes.append(error)
        )
        assert writer.flush(60) == 0
        return outcomes.pop()

    for name, (key, value) in MISFITS.items():
        error = send(key, value)
        assert error is not None and error.code() == KafkaError.INVALID_RECORD, (name, error)
    assert ends(topic) == before
    assert send(None, GOOD) is None and send(b"1", GOOD) is None and send(b"1", None) is None
    assert ends(topic) == (before[0], before[1] + 3)
    assert errors == []


def test_a_batch_with_one_bad_record_is_refused_whole(topic, errors):
    before = ends(topic)
    outcomes: list[int] = []
    writer = producer(topic, errors, **{"linger.ms": 1000})
    for number in range(50):
        value = b'{"id": "x"}' if number == 33 else b'{"id": %d}' % number
        writer.produce(
            TOPIC,
            value,
            partition=0,
            on_delivery=lambda error, _: outcomes.append(0 if error is None else error.code()),
        )
    # Not flush, which sends what there is so far.
    wait_until(lambda: writer.poll(0.1) >= 0 and len(outcomes) == 50, "all are answered")
    assert outcomes == [KafkaError.INVALID_RECORD] * 50
    assert ends(topic) == before
    assert errors == []


# --- what no client of Kafka sends ----------------------------------------------------------------


@pytest.fixture
def asker(topic) -> Iterator[Asker]:
    """A connection to the leader."""
    made = connect(topic)
    yield made
    made.close()


def connect(cluster: Any) -> Asker:
    client = admin(cluster)
    leader = client.list_topics(TOPIC, timeout=30).brokers[leader_of(client, TOPIC)]
    return Asker(leader.host, leader.port)


def sent(asker: Asker, batch: bytes) -> Any:
    records = memoryview(bytearray(batch))
    request = produce.ProduceRequest(
        None, -1, 30_000, [produce.ProducePartition(TOPIC, 0, records)]
    )
    (answer,) = asker.ask(produce.API, 9, request).partitions
    return answer


def fetched(asker: Asker, offset: int, want: Any = None) -> Any:
    wanted = [fetch.FetchPartition(TOPIC, 0, offset, 1 << 20, want=want)]
    request = fetch.FetchRequest(0, 1, 1 << 20, wanted)
    (answer,) = asker.ask(fetch.BY_NAME, 12, request).partitions
    return answer


def a_filter(*comparisons: bytes, count: int | None = None, version: int = 1) -> bytes:
    counted = len(comparisons) if count is None else count
    return struct.pack(">BH", version, counted) + b"".join(comparisons)


def a_comparison(column: int, operator: int, *values: bytes, count: int | None = None) -> bytes:
    counted = len(values) if count is None else count
    return struct.pack(">iBH", column, operator, counted) + b"".join(values)


ONE, TEXT = b"\1" + struct.pack(">q", 1), b"\3\0\0\0\1x"
ONE_COLUMN = b"\1\1" + struct.pack(">i", 1)

REFUSED_WANTS = {
    "nothing": b"",
    "an unknown mode": b"\2",
    "a very unknown mode": b"\xff" * 5,
    "something behind the first mode": b"\0\0",
    "no count": b"\1",
    "a count that is cut off": b"\1\x80",
    "an endless count": b"\1" + b"\xff" * 20,
    "two billion columns": b"\1" + uvarint((1 << 31) - 1) + bytes(8),
    "columns that are cut off": b"\1\2" + bytes(7),
    "too many columns": b"\1" + uvarint(2005) + struct.pack(">2005i", *range(2005)),
    "a column twice": b"\1\2" + struct.pack(">2i", 1, 1),
    "a filter of another version": ONE_COLUMN + a_filter(version=2),
    "65,535 comparisons": ONE_COLUMN + a_filter(count=65_535),
    "65,535 values": ONE_COLUMN + a_filter(a_comparison(1, 7, count=65_535)),
    "4,001 values": ONE_COLUMN
    + a_filter(*[a_comparison(1, 7, *[ONE] * 1000)] * 4, a_comparison(1, 1, ONE)),
    "an unknown operator": ONE_COLUMN + a_filter(a_comparison(1, 99, ONE)),
    "an unknown kind of value": ONE_COLUMN + a_filter(a_comparison(1, 1, b"\x09")),
    "a text of two billion bytes": ONE_COLUMN + a_filter(a_comparison(1, 1, b"\3\x7f\xff\xff\xff")),
    "a text that is none": ONE_COLUMN + a_filter(a_comparison(1, 1, b"\3\0\0\0\1\xff")),
    "two values for =": ONE_COLUMN + a_filter(a_comparison(1, 1, ONE, ONE)),
    "no value for <": ONE_COLUMN + a_filter(a_comparison(1, 3)),
    "bytes behind the filter": ONE_COLUMN + a_filter(a_comparison(1, 1, ONE)) + b"x",
    "half a megabyte": ONE_COLUMN + bytes(512 << 10),
}

HARMLESS_WANTS = {
    "no columns": b"\1\0",
    "columns that nobody has": b"\1\3" + struct.pack(">3i", 0, 1 << 30, -(1 << 31)),
    "all columns": b"\1" + uvarint(2004) + struct.pack(">2004i", *range(2004)),
    "a filter of a column that nobody has": ONE_COLUMN + a_filter(a_comparison(1 << 30, 1, ONE)),
    "text for a number": ONE_COLUMN + a_filter(a_comparison(1, 1, TEXT)),
    "a number for an array": ONE_COLUMN + a_filter(a_comparison(11, 6, ONE)),
    "an IN of nothing": ONE_COLUMN + a_filter(a_comparison(1, 7)),
    "NaN for a number": ONE_COLUMN + a_filter(a_comparison(1, 3, b"\2\x7f\xf8" + bytes(6))),
    "a decimal with 255 digits behind the point": ONE_COLUMN
    + a_filter(a_comparison(4, 3, b"\5\xff" + b"\x7f" * 16)),
}


@pytest.mark.parametrize("attack", REFUSED_WANTS)
def test_a_want_that_is_malformed_or_too_large_costs_its_own_connection_at_most(
    topic, asker, monkeypatch, attack
):
    monkeypatch.setattr(fetch, "encode_want", lambda raw: raw)
    hostile = connect(topic)
    try:
        answer = fetched(hostile, 0, REFUSED_WANTS[attack])
    except OurError as error:
        assert error.code is ErrorCode.NETWORK_EXCEPTION
    else:
        assert answer.error_code and not answer.records
    finally:
        hostile.close()
    assert fetched(asker, 0).error_code == 0


@pytest.mark.parametrize("wanted", HARMLESS_WANTS)
def test_a_want_of_what_is_not_there_gets_frames_that_can_be_read(asker, monkeypatch, wanted):
    answer = sent(asker, plain([GOOD]))
    assert answer.error_code == 0
    monkeypatch.setattr(fetch, "encode_want", lambda raw: raw)
    found = fetched(asker, answer.base_offset, HARMLESS_WANTS[wanted])
    assert found.error_code == 0
    reading = plan(SCHEMA, [], ["_offset"])
    pieces = list(iter_typed_decoded(found.records, reading, framed=True, topic_schema=SCHEMA))
    assert pieces[-1].next_offset == answer.base_offset + 1


# --- bombs ----------------------------------------------------------------------------------------

BOMB_BYTES = 32 << 20
GROWTH_MAX_BYTES = 1 << 30
"""Of a leader that gets bombs: as much as the texts take that it may decompress, a few times."""

TEXT_BOMBS = {
    "numbers beside a misfit": b'{"id": "x", "a": [%s1]}' % (b"1," * (BOMB_BYTES // 2)),
    "a map of many parts": b'{"id": 1, "m": {%s"a": 1}}' % (b'"":1,' * (BOMB_BYTES // 5)),
    "many unknown columns": b'{"id": 1, %s"x": 1}' % (b'"x":1,' * (BOMB_BYTES // 6)),
}


def plain(values: list[bytes], **options: Any) -> bytes:
    named = {"batch_bytes": 2 * BOMB_BYTES, **options}
    (batch,) = encode_batches(pa.array(values, pa.binary()), **named)
    return bytes(batch.data)


def high_water_bytes(cluster: Any) -> int:
    """Of the leader."""
    pid = cluster.state.broker(leader_of(admin(cluster), TOPIC)).pid
    (found,) = re.findall(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found) << 10


def test_texts_of_some_kilobytes_that_become_megabytes_are_refused_in_time(topic, asker):
    leader, before = leader_of(admin(topic), TOPIC), high_water_bytes(topic)
    for name, text in TEXT_BOMBS.items():
        batch = plain([text], compression="zstd")
        assert len(batch) < 10_000
        answer = sent(asker, batch)
        assert answer.error_code == ErrorCode.INVALID_RECORD, name
        assert "\n" not in answer.error_message and len(answer.error_message) < 500
    assert leader_of(admin(topic), TOPIC) == leader
    assert high_water_bytes(topic) - before < GROWTH_MAX_BYTES


def topic_id(asker: Asker) -> UUID:
    request = DescribeSchemasRequest(topics=(TOPIC,))
    (described,) = asker.ask(DESCRIBE_SCHEMAS, 0, request).topics
    return UUID(str(described.topic_id))


def typed(asker: Asker, **entries: Any) -> bytearray:
    """A batch of one row, of whose second column the block and some numbers are others."""
    rows = pa.record_batch({"id": pa.array([1]), "s": pa.array(["x"])})
    (encoded,) = iter_typed(rows, SCHEMA, SCHEMA.latest, topic_id(asker), batch_bytes=1 << 20)
    batch = bytearray(encoded.data)
    if not entries:
        return batch
    section = bytes(batch[HEADER_BYTES:])
    directory = read_directory(section)
    first, second = directory.entries
    columns = section[directory.size :][: first.stored_bytes]
    block = entries.pop("block")
    second = second._replace(stored_bytes=len(block), crc=_crc(block), codec=4, **entries)
    head = encode_directory(
        topic_id=directory.topic_id, schema_version=1, rows=1, entries=[first, second]
    )
    changed = bytearray(batch[:HEADER_BYTES]) + head + columns + block
    seal(changed, 0, read_header(batch)._replace(length=len(changed) - 12))
    return changed


def _crc(data: bytes) -> int:
    from crc32c import crc32c

    return int(crc32c(data))


def test_a_column_that_becomes_more_than_it_says_is_an_error_to_readers_and_fills_no_memory(
    topic, asker
):
    before = high_water_bytes(topic)
    block = bytes(pa.Codec("zstd").compress(bytes(1 << 29)))
    answer = sent(asker, typed(asker, block=block, raw_bytes=1 << 29))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "after decompression" in answer.error_message
    # The broker looks into no column: what a producer says of it is believed until it is read.
    answer = sent(asker, typed(asker, block=block, raw_bytes=1000))
    assert answer.error_code == 0
    bad = answer.base_offset
    assert sent(asker, bytes(typed(asker))).base_offset == bad + 1
    wait_until(lambda: fetched(asker, bad + 1).records, "the row behind it is there")
    assert fetched(asker, bad).error_code == ErrorCode.CORRUPT_MESSAGE
    frames = fetched(asker, bad, TypedWant(WANT_FRAMES, (5,)))
    with pytest.raises(OurError, match="damaged"):
        list(
            iter_typed_decoded(
                frames.records, plan(SCHEMA, ["s"]), framed=True, topic_schema=SCHEMA
            )
        )
    # Who does not read the column is not concerned, and neither are other rows.
    frames = fetched(asker, bad, TypedWant(WANT_FRAMES, (1,)))
    (piece,) = iter_typed_decoded(
        frames.records, plan(SCHEMA, ["id"]), framed=True, topic_schema=SCHEMA
    )
    assert piece.batch.to_pylist()[:2] == [{"id": 1}, {"id": 1}]
    assert high_water_bytes(topic) - before < GROWTH_MAX_BYTES
