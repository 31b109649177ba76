"""The producer's thread: when batches leave, their outcomes, and its end (R-CLI1, R-CLI7)."""

import time

import pytest

from storage_engine.client import ProducerClosedError
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    RecordTooLargeError,
)
from storage_engine.tests.client.fake_cluster import Fault
from storage_engine.tests.client.producer.written import rows_of

WAIT_S = 30


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


@pytest.mark.usefixtures("unknown_topics_are_told_soon")
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
