"""The batches of one partition: which may be in flight together, and with which sequence
(R-CLI7)."""

import time

import pytest

from storage_engine.client.producer.produce import BatchWriter
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.tests.client.fake_cluster import Fault
from storage_engine.tests.client.producer.written import T0, write
from storage_engine.tests.client.support.batches import numbered_batch, values_of


def test_without_idempotence_order_holds_and_one_batch_at_a_time_is_in_flight(fake, cluster):
    fake.add_topic("t", [1, 1])
    fake.partition("t").errors.extend([ErrorCode.NOT_ENOUGH_REPLICAS] * 2)
    partitions = [T0, TopicPartition("t", 1)]
    with BatchWriter(cluster, idempotent=False) as writer:
        write(writer, 30, *partitions)
    assert fake.count("InitProducerId") == 0
    for tp in partitions:
        assert values_of(fake.partition(*tp)) == list(range(30))


def test_a_forgotten_producer_gets_a_new_identity_when_that_is_safe(fake, cluster):
    fake.add_topic("t", [1])
    with BatchWriter(cluster) as writer:
        write(writer, 10)
        writer.flush()
        fake.partition("t").producers.clear()
        write(writer, 10, start=10)
    assert values_of(fake.partition("t")) == list(range(20))
    headers = [read_header(batch) for batch in fake.partition("t").batches]
    assert len({header.producer_id for header in headers}) == 2
    assert [header.base_sequence for header in headers[10:]] == list(range(0, 30, 3))


def test_a_forgotten_producer_is_an_error_when_a_batch_may_have_arrived_before(fake, cluster):
    fake.add_topic("t", [1])
    with BatchWriter(cluster) as writer:
        write(writer, 1)
        writer.flush()
        lost = fake.count("Produce") + 1

        def fault(asked):
            if asked.api == "Produce" and asked.number == lost:
                fake.partition("t").producers.clear()
                return Fault.DROP
            return None

        fake.fault = fault
        with pytest.raises(KafkaError) as raised:
            write(writer, 1, start=1)
            writer.flush()
        assert raised.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
        writer.abandon()


def test_batches_behind_one_that_is_tried_again_use_up_none_of_their_own_tries(fake, cluster):
    fake.add_topic("t", [1])
    left = {0: 3, 3: 2}

    def fault(asked):
        if asked.api != "Produce":
            return None
        sequence = read_header(asked.message.partitions[0].records).base_sequence
        if not left.get(sequence) or (sequence == 3 and left[0]):
            # The others are on their way before this one is answered.
            time.sleep(0.02)
            return None
        left[sequence] -= 1
        time.sleep(0.02)
        return ErrorCode.NOT_ENOUGH_REPLICAS

    fake.fault = fault
    with BatchWriter(cluster, retries=3) as writer:
        write(writer, 4)
    assert left == {0: 0, 3: 0}
    assert values_of(fake.partition("t")) == [0, 1, 2, 3]


def outcomes_of(writer, numbers):
    """The outcomes of batches with these numbers, as they become known."""
    outcomes = []
    for number in numbers:
        writer.append(
            T0,
            numbered_batch(number),
            done=lambda offset, error, number=number: outcomes.append((number, offset, error)),
        )
    writer.flush()
    return outcomes


def slow(number):
    """The answer to this Produce request takes so long that the next would be sent meanwhile."""

    def fault(asked):
        if asked.api == "Produce" and asked.number == number:
            time.sleep(0.2)

    return fault


def test_a_second_batch_waits_until_the_leader_knows_the_producer(fake, cluster):
    """A leader that takes any sequence of a producer that it does not know, as Kafka's does: it
    would take the second batch behind a first that it has refused, and the first never after."""
    fake.add_topic("t", [1])
    partition = fake.partition("t")
    partition.errors.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    partition.takes_any_first = True
    fake.fault = slow(1)
    with BatchWriter(cluster) as writer:
        outcomes = outcomes_of(writer, range(3))
    assert [outcome[0] for outcome in outcomes if outcome[2] is None] == [0, 1, 2]
    assert values_of(partition) == [0, 1, 2]


def test_a_new_identity_begins_with_one_batch_too(fake, cluster):
    fake.add_topic("t", [1])
    partition = fake.partition("t")
    with BatchWriter(cluster) as writer:
        outcomes_of(writer, [0])
        partition.producers.clear()
        outcomes_of(writer, [1])
        partition.takes_any_first = True
        partition.producers.clear()
        writer._queues[T0].renew_producer = True
        partition.errors.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        fake.fault = slow(fake.count("Produce") + 1)
        outcomes_of(writer, [2, 3])
    assert values_of(partition) == [0, 1, 2, 3]


def test_a_batch_is_never_sent_as_a_new_one_behind_a_later_one(fake, cluster):
    """A leader that forgets the producer, and takes any sequence then, as Kafka's does."""
    fake.add_topic("t", [1])
    partition = fake.partition("t")
    with BatchWriter(cluster) as writer:
        outcomes_of(writer, [0])
        partition.producers.clear()
        partition.takes_any_first = True
        partition.errors.append(ErrorCode.NOT_ENOUGH_REPLICAS)
        # The second is on its way before the first is answered.
        fake.fault = slow(fake.count("Produce") + 1)
        later, first = outcomes_of(writer, [1, 2])
        writer.append(T0, numbered_batch(3))
    assert later == (2, 3, None)
    assert first[:2] == (1, -1)
    assert first[2].code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert values_of(partition) == [0, 2, 3]


def test_never_more_than_five_batches_of_a_partition_are_in_flight(fake, cluster):
    fake.add_topic("t", [1])
    with BatchWriter(cluster, max_in_flight=50) as writer:
        for number in range(100):
            writer.append(T0, numbered_batch(number, padding=100_000))
            assert len(writer._queues[T0].in_flight) <= 5
    assert values_of(fake.partition("t")) == list(range(100))
