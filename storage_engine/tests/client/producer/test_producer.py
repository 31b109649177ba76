"""The public producer: batching, partitions, futures, errors, back pressure (R-CLI1, R-CLI7)."""

import asyncio
import itertools
import threading
import zlib

import pyarrow as pa
import pytest

from storage_engine.client import BufferFullError, RecordMetadata, SerializationError
from storage_engine.client.producer.partition_choice import partition_for_key
from storage_engine.client.producer.producer_errors import TriesExhaustedError
from storage_engine.core.errors import (
    ConfigError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    RecordTooLargeError,
)
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.client.producer.written import rows_of
from storage_engine.tests.forked import forked

WAIT_S = 30


def test_a_record_is_where_its_future_says(fake, produce):
    fake.add_topic("t", [1, 2, 3])
    with produce() as producer:
        headers = [("h", b"1"), ("h", None)]
        future = producer.send("t", "é", key=b"k", headers=headers, timestamp_ms=77)
        assert future.result(WAIT_S) == RecordMetadata("t", partition_for_key(b"k", 3), 0)
    batch = fake.partition("t", partition_for_key(b"k", 3)).batches[0]
    decoded = decode_batches(batch, include_headers=True)
    assert decoded.values.to_pylist() == ["é".encode()]
    assert decoded.headers.to_pylist() == [
        [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    ]
    header = read_header(batch)
    assert (header.base_timestamp, header.base_sequence) == (77, 0)


def test_rows_and_tables_go_where_the_setting_partitioner_sends_their_keys(fake, produce):
    fake.add_topic("t", [1, 2, 3, 1])
    keys = [f"key {number}" for number in range(20)]
    with produce({"partitioner": "consistent_random"}) as producer:
        futures = [producer.send("t", b"row", key=key) for key in keys]
        producer.send_table("t", pa.table({"key": keys, "value": ["row"] * 20})).result(WAIT_S)
    wanted = [zlib.crc32(key.encode()) % 4 for key in keys]
    assert [future.result().partition for future in futures] == wanted
    for number in range(4):
        there = [key.encode() for key, at in zip(keys, wanted, strict=True) if at == number]
        assert [key for key, _ in rows_of(fake.partition("t", number))] == there * 2
    with pytest.raises(ConfigError, match="leave one of the two out"):
        produce({"partitioner": "murmur2"}, partitioner=lambda *_: 0)
    with pytest.raises(ConfigError, match="partitioner is 'crc32'; it must be one of"):
        produce({"partitioner": "crc32"})


def test_records_of_a_partition_keep_their_order_over_batches_and_tables(fake, produce):
    fake.add_topic("t", [1, 2])
    with produce({"batch.size": 500}) as producer:
        futures = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(100)]
        table = pa.table({"value": [b"%d" % n for n in range(100, 200)], "partition": [0, 1] * 50})
        told = producer.send_table("t", table)
        futures += [producer.send("t", b"%d" % n, partition=n % 2) for n in range(200, 300)]
        assert told.result(WAIT_S).rows == 100
    for number in (0, 1):
        assert rows_of(fake.partition("t", number)) == [
            (None, b"%d" % n) for n in range(number, 300, 2)
        ]
    assert [future.result().offset for future in futures[:6]] == [0, 0, 1, 1, 2, 2]
    assert len(fake.partition("t", 0).batches) > 5


def test_records_without_a_key_fill_a_batch_before_they_go_elsewhere(fake, produce):
    fake.add_topic("t", [1, 2, 3])
    with produce({"linger.ms": 5_000, "batch.size": 1000}) as producer:
        futures = [producer.send("t", b"v" * 75) for _ in range(300)]
        producer.flush()
    partitions = [future.result(WAIT_S).partition for future in futures]
    assert set(partitions) == {0, 1, 2}
    assert sum(a != b for a, b in itertools.pairwise(partitions)) <= 30


def test_a_partitioner_of_the_users_decides(fake, produce):
    fake.add_topic("t", [1, 2, 3])
    producer = produce(partitioner=lambda topic, key, value, count: int(value) % count)
    assert [producer.send("t", b"%d" % n).result(WAIT_S).partition for n in range(4)] == [
        0, 1, 2, 0,
    ]  # fmt: skip
    wrong = produce(partitioner=lambda topic, key, value, count: count)
    with pytest.raises(ConfigError, match="the partitioner gave 3 for topic 't'"):
        wrong.send("t", b"")


def test_encoders_are_asked_and_their_failure_names_the_record(fake, produce):
    fake.add_topic("t", [1])
    with produce(value_encoder=lambda number: b"%d" % number) as producer:
        producer.send("t", 42)
        with pytest.raises(SerializationError, match="the value of a record for topic 't'"):
            producer.send("t", "text")
        with pytest.raises(SerializationError, match="a int is neither bytes nor text"):
            producer.send("t", 1, key=5)
        with pytest.raises(SerializationError, match="is not a pair of text and bytes"):
            producer.send("t", 1, headers=[("a", "b")])
        with pytest.raises(SerializationError, match="is not a pair of text and bytes"):
            producer.send("t", 1, headers=[("\ud800", b"")])
        with pytest.raises(SerializationError, match="is not a time in milliseconds"):
            producer.send("t", 1, timestamp_ms=1 << 64)
        with pytest.raises(SerializationError, match=r"the timestamp 1\.5 is not a time"):
            producer.send("t", 1, timestamp_ms=1.5)
    assert rows_of(fake.partition("t")) == [(None, b"42")]


def test_a_callback_gets_the_metadata_or_the_error(fake, produce):
    fake.add_topic("t", [1])
    fake.partition("t").max_batch_bytes = 1000
    told = []
    producer = produce()
    producer.send("t", b"a", callback=lambda *said: told.append(said))
    producer.flush()
    producer.send("t", b"b" * 2000, callback=lambda *said: told.append(said))
    with pytest.raises(RecordTooLargeError, match=r"max\.message\.bytes"):
        producer.flush()
    assert told[0] == (RecordMetadata("t", 0, 0), None)
    assert told[1][0] is None
    assert isinstance(told[1][1], RecordTooLargeError)


def test_a_future_can_be_awaited(fake, produce):
    fake.add_topic("t", [1])
    producer = produce()

    async def send():
        return await asyncio.wrap_future(producer.send("t", b"v"))

    assert asyncio.run(send()).offset == 0


def test_a_send_waits_for_room_and_fails_with_its_own_error_when_there_is_none(fake, produce):
    fake.add_topic("t", [1])
    silent = threading.Event()
    silent.set()
    fake.fault = lambda asked: (
        ErrorCode.NOT_ENOUGH_REPLICAS if asked.api == "Produce" and silent.is_set() else None
    )
    producer = produce({"buffer.memory": 2000, "max.block.ms": 200})
    accepted = []
    with pytest.raises(BufferFullError, match=r"buffer\.memory \(2000 bytes\) was full"):
        while True:
            accepted.append(producer.send("t", b"x" * 100))
    assert 10 <= len(accepted) <= 20
    silent.clear()
    producer.flush()
    assert producer.send("t", b"more").result(WAIT_S).offset == len(accepted)
    assert sorted(future.result(0).offset for future in accepted) == list(range(len(accepted)))


def test_a_final_error_is_told_from_a_retriable_one(fake, produce):
    fake.add_topic("t", [1])
    fake.partition("t").errors.extend(
        [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    )
    producer = produce()
    with pytest.raises(KafkaError, match="not allowed to use that topic") as raised:
        producer.send("t", b"v").result(WAIT_S)
    assert not raised.value.retriable


def test_a_record_above_the_limits_is_refused_at_once(fake, produce):
    fake.add_topic("t", [1])
    producer = produce({"max.request.size": 1000})
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.send("t", b"x" * 1000)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_of_a_fork_is_told_that_the_producer_is_its_parents(fake, produce):
    fake.add_topic("t", [1])
    producer = produce({"linger.ms": 10_000})
    waits = producer.send("t", b"x")

    def uses():
        for call in (lambda: producer.send("t", b"y"), producer.flush, producer.init_transactions):
            with pytest.raises(HeadraceError):
                call()
        producer.close()
        return True

    assert forked(uses)
    producer.flush()
    assert waits.result(0).offset == 0


def test_an_error_in_the_block_is_not_hidden_and_what_was_sent_arrives(fake, produce):
    fake.add_topic("t", [1])
    with pytest.raises(ZeroDivisionError), produce({"linger.ms": 1000}) as producer:
        producer.send("t", b"v")
        raise ZeroDivisionError
    assert rows_of(fake.partition("t")) == [(None, b"v")]


def test_many_threads_share_a_producer(fake, produce):
    fake.add_topic("t", [1, 2, 3])
    with produce({"batch.size": 500, "buffer.memory": 5000}) as producer:

        def send(thread):
            for number in range(200):
                producer.send("t", b"%d" % number, key=b"thread-%d" % thread)

        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = [row for number in range(3) for row in rows_of(fake.partition("t", number))]
    for number in range(4):
        key = b"thread-%d" % number
        assert [int(value) for found, value in rows if found == key] == list(range(200))


def test_weaker_acks_are_taken_at_their_word(fake, produce):
    fake.add_topic("t", [1])
    with produce({"acks": "0"}) as producer:
        assert producer.send("t", b"v").result(WAIT_S).offset == -1
    with produce({"acks": 1}) as producer:
        producer.send("t", b"v").result(WAIT_S)
    assert read_header(fake.partition("t").batches[-1]).producer_id == -1


def test_a_producer_gives_up_after_its_retries(fake, produce):
    fake.add_topic("t", [1])
    fake.fault = lambda asked: ErrorCode.NOT_ENOUGH_REPLICAS if asked.api == "Produce" else None
    producer = produce({"retries": "1"})
    error = producer.send("t", b"x").exception(WAIT_S)
    with pytest.raises(HeadraceError):
        producer.flush()
    assert isinstance(error, TriesExhaustedError)
    assert "not delivered in 2 tries (retries=1): NOT_ENOUGH_REPLICAS" in str(error)
