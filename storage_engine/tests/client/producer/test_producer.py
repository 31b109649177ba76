"""The public producer: batching, partitions, futures, errors, back pressure (R-CLI1, R-CLI7)."""

import asyncio
import itertools
import os
import signal
import threading
import time
import zlib

import pyarrow as pa
import pytest

from storage_engine.client import (
    BufferFullError,
    CommitRefusedError,
    GroupMetadata,
    Producer,
    ProducerClosedError,
    RecordMetadata,
    SerializationError,
    TopicPartition,
    TransactionFailedError,
)
from storage_engine.client.producer.partition_choice import partition_for_key
from storage_engine.client.producer.transactions import ProducerTransactions
from storage_engine.core.errors import (
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    RecordTooLargeError,
)
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.tests.client.fake_cluster import Fault

WAIT_S = 30


@pytest.fixture
def produce(fake):
    """A producer of the fake cluster, with settings as given."""
    made = []

    def make(settings=None, **others):
        config = {
            "bootstrap.servers": fake.bootstrap_servers,
            "request.timeout.ms": 2000,
            "delivery.timeout.ms": 20_000,
            "linger.ms": 0,
        }
        made.append(Producer(config | (settings or {}), **others))
        return made[-1]

    yield make
    for producer in made:
        try:
            producer.close(0)
        except HeadraceError:
            continue


def rows_of(partition):
    """(key, value) of each record in the log."""
    rows: list[tuple[bytes | None, bytes | None]] = []
    for batch in partition.batches:
        decoded = decode_batches(batch)
        rows += zip(decoded.keys.to_pylist(), decoded.values.to_pylist(), strict=True)
    return rows


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


def test_lingering_records_share_a_batch_and_a_flush_ends_the_wait(fake, produce):
    fake.add_topic("t", [1])
    producer = produce({"linger.ms": 10_000, "delivery.timeout.ms": 20_000})
    futures = [producer.send("t", b"v") for _ in range(50)]
    assert not any(future.done() for future in futures)
    producer.flush()
    assert [future.result(0).offset for future in futures] == list(range(50))
    assert len(fake.partition("t").batches) == 1


def test_a_full_batch_goes_before_the_linger_is_over(fake, produce):
    fake.add_topic("t", [1])
    producer = produce({"linger.ms": 15_000, "batch.size": 1000})
    first = producer.send("t", b"v" * 600)
    producer.send("t", b"v" * 600)
    assert first.result(WAIT_S).offset == 0
    assert max(len(batch) for batch in fake.partition("t").batches) <= 1000


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


def test_a_callback_may_send_and_may_not_flush(fake, produce):
    fake.add_topic("t", [1])
    producer = produce()
    later, refused = [], []

    def again(metadata, error):
        later.append(producer.send("t", b"again"))
        try:
            producer.flush()
        except HeadraceError as failure:
            refused.append(str(failure))

    producer.send("t", b"first", callback=again).result(WAIT_S)
    producer.flush()
    assert later[0].result(WAIT_S).offset == 1
    assert refused == ["flush can't be called in a callback: it would wait for itself"]


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_a_callback_that_raises_costs_no_other_record(fake, produce, error):
    fake.add_topic("t", [1])
    producer = produce({"linger.ms": 50})
    told = []

    def callback(_metadata, _error):
        told.append(1)
        raise error

    futures = [producer.send("t", b"x", callback=callback) for _ in range(3)]
    producer.flush(10_000)
    assert [future.result(WAIT_S).offset for future in futures] == [0, 1, 2]
    assert told == [1, 1, 1]
    assert producer.send("t", b"y").result(WAIT_S).offset == 3


def test_a_future_can_be_awaited(fake, produce):
    fake.add_topic("t", [1])
    producer = produce()

    async def send():
        return await asyncio.wrap_future(producer.send("t", b"v"))

    assert asyncio.run(send()).offset == 0


def test_a_batch_that_is_refused_fails_alone_and_what_follows_is_there_once(fake, produce):
    fake.add_topic("t", [1, 2])
    fake.partition("t", 0).max_batch_bytes = 1000
    producer = produce({"linger.ms": 0, "batch.size": 100})
    futures = []
    for number in range(60):
        payload = b"x" * 2000 if number % 10 == 5 else b"%d" % number
        futures.append(producer.send("t", payload, partition=0))
        futures.append(producer.send("t", b"%d" % number, partition=1))
    with pytest.raises(RecordTooLargeError):
        producer.flush()
    errors = [future.exception(WAIT_S) for future in futures]
    assert [type(error) for error in errors if error is not None] == [RecordTooLargeError] * 6
    kept = [(None, b"%d" % number) for number in range(60) if number % 10 != 5]
    assert rows_of(fake.partition("t", 0)) == kept
    assert rows_of(fake.partition("t", 1)) == [(None, b"%d" % number) for number in range(60)]
    producer.flush()


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.DO_AND_DROP])
def test_lost_connections_neither_lose_nor_double_nor_reorder(fake, produce, fault):
    fake.add_topic("t", [1, 2])

    def spoil(asked):
        return fault if asked.api == "Produce" and asked.number in (1, 4, 9, 16) else None

    fake.fault = spoil
    with produce({"batch.size": 200, "delivery.timeout.ms": 60_000}) as producer:
        futures = [producer.send("t", b"%d" % n, partition=n % 2) for n in range(200)]
    for number in (0, 1):
        assert rows_of(fake.partition("t", number)) == [
            (None, b"%d" % n) for n in range(number, 200, 2)
        ]
    assert all(future.exception(0) is None for future in futures)


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


def test_nothing_delivered_in_time_is_told_by_the_future(fake, produce):
    fake.add_topic("t", [1])
    producer = produce({"delivery.timeout.ms": 2000})
    producer.send("t", b"u").result(WAIT_S)
    fake.fault = lambda asked: ErrorCode.NOT_ENOUGH_REPLICAS if asked.api == "Produce" else None
    with pytest.raises(DeadlineExceededError, match="t-0: not delivered within 2000 ms"):
        producer.send("t", b"v").result(WAIT_S)
    fake.fault = lambda asked: None
    assert producer.send("t", b"w").result(WAIT_S).offset == 1
    assert rows_of(fake.partition("t")) == [(None, b"u"), (None, b"w")]


def test_a_final_error_is_told_from_a_retriable_one(fake, produce):
    fake.add_topic("t", [1])
    fake.partition("t").errors.extend(
        [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    )
    producer = produce()
    with pytest.raises(KafkaError, match="not allowed to use that topic") as raised:
        producer.send("t", b"v").result(WAIT_S)
    assert not raised.value.retriable


def test_a_topic_or_partition_that_does_not_exist_is_named(fake, produce):
    fake.add_topic("t", [1])
    producer = produce({"max.block.ms": 1000})
    with pytest.raises((KafkaError, DeadlineExceededError), match="topic 'nope'"):
        producer.send("nope", b"")
    with pytest.raises(KafkaError, match="so there is no partition 1"):
        producer.send("t", b"", partition=1)
    assert producer.send("t", b"still alive").result(WAIT_S).offset == 0


def test_a_topic_that_appears_late_is_waited_for(fake, produce):
    producer = produce()

    def appear(asked):
        if asked.api == "Metadata" and asked.number == 3:
            fake.add_topic("late", [1])

    fake.fault = appear
    assert producer.send("late", b"v").result(WAIT_S).offset == 0


def test_a_record_above_the_limits_is_refused_at_once(fake, produce):
    fake.add_topic("t", [1])
    producer = produce({"max.request.size": 1000})
    with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
        producer.send("t", b"x" * 1000)


def test_a_closed_producer_sends_nothing_and_what_it_dropped_is_told(fake, produce):
    fake.add_topic("t", [1])
    fake.fault = lambda asked: Fault.SILENCE if asked.api == "Produce" else None
    producer = produce()
    future = producer.send("t", b"v")
    with pytest.raises(DeadlineExceededError, match="1 batches are not acknowledged"):
        producer.close(50)
    with pytest.raises(ProducerClosedError):
        future.result(WAIT_S)
    with pytest.raises(ProducerClosedError):
        producer.send("t", b"v")


def test_a_close_with_a_timeout_does_not_wait_for_a_broker_that_hangs(fake, produce):
    fake.add_topic("t", [1])
    fake.fault = lambda asked: Fault.SILENCE if asked.api == "InitProducerId" else None
    producer = produce({"request.timeout.ms": 15_000, "delivery.timeout.ms": 20_000})
    told = []
    future = producer.send("t", b"x", callback=lambda _, error: told.append(error))
    while not fake.count("InitProducerId"):
        time.sleep(0.01)
    began_s = time.monotonic()
    with pytest.raises(DeadlineExceededError, match="1 batches are not acknowledged"):
        producer.close(100)
    assert time.monotonic() - began_s < 10
    assert isinstance(future.exception(0), ProducerClosedError)
    assert [type(error) for error in told] == [ProducerClosedError]
    with pytest.raises(ProducerClosedError):
        producer.send("t", b"y")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_of_a_fork_is_told_that_the_producer_is_its_parents(fake, produce):
    fake.add_topic("t", [1])
    producer = produce({"linger.ms": 10_000})
    waits = producer.send("t", b"x")
    child = os.fork()
    if not child:
        signal.alarm(WAIT_S)
        for call in (lambda: producer.send("t", b"y"), producer.flush, producer.init_transactions):
            with pytest.raises(HeadraceError):
                call()
        producer.close()
        os._exit(17)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bootstrap.server": "x"}, "did you mean 'bootstrap.servers'?"),
        ({"linger_ms": 3}, "not a setting of the producer; did you mean 'linger.ms'?"),
        ({"acks": "2"}, "acks is '2'; it must be all (-1), 1 or 0"),
        ({"compression.type": "rar"}, "it must be one of none, gzip, snappy, lz4, zstd"),
        ({"batch.size": -1}, "batch.size is -1; it must be a whole number from 1 to"),
        ({"acks": 1, "enable.idempotence": True}, "enable.idempotence needs acks=all"),
        ({"acks": 1, "transactional.id": "t"}, "transactional.id needs acks=all"),
        ({"delivery.timeout.ms": 5, "linger.ms": 5}, "it must be more than linger.ms"),
        ({"max.in.flight.requests.per.connection": 6}, "at most 5 with enable.idempotence"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_one_line_with_the_remedy(settings, message):
    with pytest.raises(ConfigError) as raised:
        Producer({"bootstrap.servers": "127.0.0.1:1"} | settings)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_producer_needs_servers():
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        Producer({})


@pytest.mark.parametrize("is_known", [True, False], ids=["written to before", "only asked for"])
def test_a_topic_that_is_deleted_fails_its_own_records_alone(fake, produce, is_known):
    for topic in ("t", "gone"):
        fake.add_topic(topic, [1])
    producer = produce({"metadata.max.age.ms": 1})
    producer.send("t", b"before").result(WAIT_S)
    if is_known:
        producer.send("gone", b"before").result(WAIT_S)
    else:
        producer.partitions_for("gone")
    fake.partition("t").errors.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 10_000)
    del fake.topics["gone"]
    waits = producer.send("t", b"waits")
    asked = fake.count("Metadata")
    while fake.count("Metadata") < asked + 2:
        # What is known is old, so the client asks, and forgets the topic.
        producer.partitions_for("gone")
    with pytest.raises(KafkaError, match="topic 'gone' does not exist"):
        producer.send("gone", b"lost").result(WAIT_S)
    assert not waits.done()
    fake.partition("t").errors.clear()
    assert waits.result(WAIT_S).offset == 1
    with pytest.raises(KafkaError, match="topic 'gone' does not exist"):
        producer.flush()


@pytest.mark.parametrize("error", [CommitRefusedError, DeadlineExceededError])
def test_a_transaction_without_its_offsets_can_only_be_aborted(produce, monkeypatch, error):
    """Its input would be read again, by whoever has the partitions next."""
    ended = []

    def refuse(*_args):
        raise error("refused")

    for name in ("init", "begin"):
        monkeypatch.setattr(ProducerTransactions, name, lambda _self: None)
    monkeypatch.setattr(ProducerTransactions, "send_offsets", refuse)
    monkeypatch.setattr(ProducerTransactions, "end", lambda _self, commits: ended.append(commits))
    producer = produce({"transactional.id": "t"})
    producer.init_transactions()
    producer.begin_transaction()
    with pytest.raises(error):
        producer.send_offsets_to_transaction(
            {TopicPartition("t", 0): 1}, GroupMetadata("g", 1, "m", None)
        )
    with pytest.raises(TransactionFailedError, match="abort the transaction: refused"):
        producer.commit_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.commit_transaction()
    assert ended == [False, True]


@pytest.mark.parametrize("topic", ["\ud800", "t" * 40_000])
def test_a_name_that_does_not_fit_a_request_fails_alone(fake, produce, topic):
    fake.add_topic("t", [1])
    producer = produce()
    with pytest.raises(KafkaError, match="does not fit its field in a request Metadata") as failed:
        producer.send(topic, b"x")
    assert failed.value.code is ErrorCode.INVALID_REQUEST
    assert producer.send("t", b"x").result(WAIT_S).offset == 0
