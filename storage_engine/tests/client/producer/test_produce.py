"""Batches arrive once and in order, whatever happens on the way (R-CLI1, R-CLI7)."""

import random
import re
import time
from collections import Counter

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.produce import BatchWriter
from storage_engine.client.producer.producer_errors import TriesExhaustedError
from storage_engine.core.errors import (
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    RecordTooLargeError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.client.fake_cluster import Fault
from storage_engine.tests.client.producer.written import T0, on_produce, write
from storage_engine.tests.client.support.batches import numbered_batch, values_of
from storage_engine.tests.sampling import seeds


def test_batches_of_many_partitions_and_leaders_arrive_in_order(fake, cluster):
    fake.add_topic("t", [1, 2, 3, 1, 2, 3])
    partitions = [TopicPartition("t", number) for number in range(6)]
    with BatchWriter(cluster) as writer:
        write(writer, 200, *partitions)
    for tp in partitions:
        assert values_of(fake.partition(*tp)) == list(range(200))
        delivery = writer.deliveries[tp]
        assert (delivery.first_offset, delivery.last_offset) == (0, 599)
        assert (delivery.batches, delivery.records) == (200, 600)


def test_sequences_go_on_over_the_batches_of_a_partition(fake, cluster):
    fake.add_topic("t", [1])
    with BatchWriter(cluster) as writer:
        write(writer, 5)
    headers = [read_header(batch) for batch in fake.partition("t").batches]
    assert [header.base_sequence for header in headers] == [0, 3, 6, 9, 12]
    assert len({header.producer_id for header in headers}) == 1


def test_ready_batches_of_one_leader_share_a_request_up_to_its_size(fake, cluster):
    fake.add_topic("t", [1] * 20)
    partitions = [TopicPartition("t", number) for number in range(20)]
    with BatchWriter(cluster, max_request_bytes=5000) as writer:
        write(writer, 3, *partitions, padding=400)
    requests = [asked.message for asked in fake.asked if asked.api == "Produce"]
    assert len(requests) < 30
    assert max(len(request.partitions) for request in requests) > 5
    assert max(sum(len(p.records) for p in request.partitions) for request in requests) <= 5000


def test_a_batch_larger_than_a_request_goes_alone(fake, cluster):
    fake.add_topic("t", [1, 1])
    with BatchWriter(cluster, max_request_bytes=100) as writer:
        write(writer, 2, T0, TopicPartition("t", 1), padding=1000)
    requests = [asked.message for asked in fake.asked if asked.api == "Produce"]
    assert [len(request.partitions) for request in requests] == [1, 1, 1, 1]


@pytest.mark.parametrize("fault", [Fault.DROP, Fault.DO_AND_DROP, Fault.SILENCE])
def test_a_lost_answer_neither_loses_nor_doubles(fake, fault):
    fake.add_topic("t", [1])
    fake.fault = on_produce(None, fault, None, fault)
    with (
        Cluster(fake.bootstrap_servers, request_timeout_ms=200) as cluster,
        BatchWriter(cluster) as writer,
    ):
        writer._request_timeout_ms = 200
        write(writer, 20)
        writer.flush()
    assert values_of(fake.partition("t")) == list(range(20))


def test_a_retriable_error_in_the_middle_of_a_pipeline_keeps_the_order(fake, cluster):
    fake.add_topic("t", [1])
    fake.partition("t").errors.extend(
        [ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
    )
    fake.partition("t").errors.popleft()
    with BatchWriter(cluster) as writer:
        write(writer, 30)
    assert values_of(fake.partition("t")) == list(range(30))


def test_batches_follow_a_leader_that_moves(fake, cluster):
    fake.add_topic("t", [1])
    with BatchWriter(cluster) as writer:
        for written, leader in enumerate((2, 3, 1, 2)):
            write(writer, 10, start=20 * written)
            fake.move_leader("t", 0, leader)
            write(writer, 10, start=20 * written + 10)
            writer.flush()
    assert values_of(fake.partition("t")) == list(range(80))


def test_a_broker_that_dies_and_comes_back_gets_the_rest(fake, cluster):
    fake.add_topic("t", [1, 2])
    partitions = [TopicPartition("t", number) for number in range(2)]
    with BatchWriter(cluster) as writer:
        write(writer, 10, *partitions)
        port = fake.stop_broker(1)
        write(writer, 10, *partitions, start=10)
        writer.poll(50)
        fake.start_broker(1, port)
        writer.flush()
    for tp in partitions:
        assert values_of(fake.partition(*tp)) == list(range(20))


@pytest.mark.parametrize("seed", seeds(6))
def test_under_random_faults_every_batch_arrives_once_and_in_order(fake, seed):
    chance = random.Random(seed)
    leaders = [1, 2, 3, 1]
    fake.add_topic("t", leaders)
    partitions = [TopicPartition("t", number) for number in range(len(leaders))]
    faults = [
        None,
        Fault.DROP,
        Fault.DO_AND_DROP,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "move",
    ]

    def fault(asked):
        if asked.api != "Produce":
            return Fault.DROP if asked.api == "Metadata" and chance.random() < 0.1 else None
        chosen = chance.choices(faults, [12, 1, 1, 1, 1, 1, 1])[0]
        if chosen == "move":
            fake.move_leader("t", chance.randrange(len(leaders)), chance.choice([1, 2, 3]))
            return None
        return chosen

    fake.fault = fault
    with Cluster(fake.bootstrap_servers) as cluster, BatchWriter(cluster) as writer:
        write(writer, 80, *partitions, padding=3000)
    for tp in partitions:
        assert values_of(fake.partition(*tp)) == list(range(80))


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acks_deliver_too(fake, cluster, acks):
    fake.add_topic("t", [1, 2])
    partitions = [T0, TopicPartition("t", 1)]
    with BatchWriter(cluster, acks=acks) as writer:
        write(writer, 30, *partitions)
    deadline = time.monotonic() + 60
    while sum(len(fake.partition(*tp).batches) for tp in partitions) < 60:
        assert time.monotonic() < deadline, "not all batches have arrived"
        time.sleep(0.005)
    for tp in partitions:
        assert values_of(fake.partition(*tp)) == list(range(30))
        assert writer.deliveries[tp].records == 90
    assert {a.message.acks for a in fake.asked if a.api == "Produce"} == {acks}


def test_an_old_duplicate_counts_as_delivered(fake, cluster):
    fake.add_topic("t", [1])
    fake.partition("t").errors.append(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    with BatchWriter(cluster) as writer:
        write(writer, 1)
    assert writer.deliveries[T0].batches == 1


@pytest.mark.parametrize("retries", [0, 2])
def test_a_batch_that_is_refused_more_often_than_retries_allow_fails_with_the_last_cause(
    fake, cluster, retries
):
    fake.add_topic("t", [1])
    fake.fault = on_produce(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 9)
    outcomes = []
    with BatchWriter(cluster, retries=retries) as writer:
        writer.append(
            T0, numbered_batch(0), done=lambda offset, error: outcomes.append((offset, error))
        )
        writer.flush()
        assert fake.count("Produce") == retries + 1
        fake.fault = lambda _: None
        writer.append(T0, numbered_batch(1))
    ((offset, error),) = outcomes
    assert offset == -1
    assert isinstance(error, TriesExhaustedError)
    assert re.match(
        rf"t-0: not delivered in {retries + 1} tries \(retries={retries}\): NOT_ENOUGH_REPLICAS: ",
        str(error),
    )
    assert values_of(fake.partition("t")) == [1], "what comes later goes on"


def test_a_writer_without_callbacks_fails_as_a_whole_when_tries_are_exhausted(fake, cluster):
    fake.add_topic("t", [1])
    fake.fault = on_produce(Fault.DROP, Fault.DROP)
    writer = BatchWriter(cluster, retries=1)
    with pytest.raises(TriesExhaustedError, match="not delivered in 2 tries"):
        write(writer, 1)
        writer.flush()


def test_a_batch_that_is_too_large_is_an_error_that_names_the_setting(fake, cluster):
    fake.add_topic("t", [1])
    fake.partition("t").max_batch_bytes = 500
    writer = BatchWriter(cluster)
    with pytest.raises(
        RecordTooLargeError, match=r"t-0: a batch of \d+ bytes .*max\.message\.bytes"
    ):
        writer.append(T0, numbered_batch(0, padding=1000))
        writer.flush()
    with pytest.raises(RecordTooLargeError):
        writer.append(T0, numbered_batch(1))
    writer.close()


def test_a_final_error_says_which_partition_and_why(fake, cluster):
    fake.add_topic("t", [1])
    fake.fault = on_produce(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    writer = BatchWriter(cluster)
    with pytest.raises(KafkaError, match="t-0: not allowed to use that topic"):
        write(writer, 1)
        writer.flush()
    writer.close()


def test_a_partition_that_no_leader_takes_fails_at_the_delivery_timeout(fake, cluster):
    fake.add_topic("t", [1])
    writer = BatchWriter(cluster, delivery_timeout_ms=400)
    write(writer, 1)
    writer.flush()
    fake.move_leader("t", 0, -1)
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError, match="t-0: not delivered within 400 ms"):
        write(writer, 1, start=1)
        writer.flush()
    assert time.monotonic() - started < 30
    writer.close()


def test_a_cluster_that_is_gone_fails_at_the_delivery_timeout(fake, cluster):
    fake.add_topic("t", [1])
    writer = BatchWriter(cluster, delivery_timeout_ms=400)
    write(writer, 1)
    writer.flush()
    for broker_id in (1, 2, 3):
        fake.stop_broker(broker_id)
    started = time.monotonic()
    with pytest.raises(DeadlineExceededError, match="not delivered within 400 ms"):
        write(writer, 1, start=1)
        writer.flush()
    assert time.monotonic() - started < 30
    writer.close()


def test_a_topic_deleted_under_the_writer_is_an_error_that_names_it(fake, cluster):
    fake.add_topic("t", [1])
    writer = BatchWriter(cluster)
    write(writer, 1)
    writer.flush()
    del fake.topics["t"]
    with pytest.raises(KafkaError, match="topic 't' does not exist"):
        write(writer, 1, start=1)
        writer.flush()
    writer.close()


def test_an_unknown_topic_or_partition_is_refused_before_anything_is_taken(fake, cluster):
    fake.add_topic("t", [1])
    with BatchWriter(cluster) as writer:
        with pytest.raises(KafkaError, match="topic 'nope' does not exist"):
            writer.append(TopicPartition("nope", 0), numbered_batch(0))
        with pytest.raises(KafkaError, match="topic 't' has 1 partitions"):
            writer.append(TopicPartition("t", 9), numbered_batch(0))
        write(writer, 1)
    assert values_of(fake.partition("t")) == [0]


def test_append_waits_while_too_much_is_buffered(fake, cluster):
    fake.add_topic("t", [1])
    with BatchWriter(cluster, buffer_bytes=20_000) as writer:
        for number in range(100):
            writer.append(T0, numbered_batch(number, padding=1000))
            assert writer._buffered_bytes <= 20_000
    assert values_of(fake.partition("t")) == list(range(100))


def test_deliveries_are_reported_with_their_offsets(fake, cluster):
    fake.add_topic("t", [1])
    seen = []
    with BatchWriter(cluster, on_delivered=lambda *delivery: seen.append(delivery)) as writer:
        write(writer, 3)
    assert seen == [(T0, 0, 3), (T0, 3, 3), (T0, 6, 3)]


def test_an_exception_in_the_with_block_does_not_wait_for_deliveries(fake, cluster):
    fake.add_topic("t", [1])
    fake.fault = lambda asked: Fault.SILENCE if asked.api == "Produce" else None
    started = time.monotonic()
    with pytest.raises(ZeroDivisionError), BatchWriter(cluster) as writer:
        write(writer, 1)
        raise ZeroDivisionError
    assert time.monotonic() - started < 30
    with pytest.raises(HeadraceError, match="closed"):
        writer.append(T0, numbered_batch(0))


@pytest.mark.parametrize("arguments", [{"acks": 2}, {"acks": 1, "idempotent": True}])
def test_impossible_settings_are_refused(cluster, arguments):
    with pytest.raises(ConfigError, match="acks"):
        BatchWriter(cluster, **arguments)


def test_partitions_take_turns(fake, cluster):
    fake.add_topic("t", [1] * 4)
    partitions = [TopicPartition("t", number) for number in range(4)]
    with BatchWriter(cluster, max_request_bytes=2500) as writer:
        write(writer, 25, *partitions, padding=1000)
    asked = [a.message for a in fake.asked if a.api == "Produce"]
    first_half = [p.partition for request in asked[: len(asked) // 2] for p in request.partitions]
    assert min(Counter(first_half).values()) > len(first_half) // 8
