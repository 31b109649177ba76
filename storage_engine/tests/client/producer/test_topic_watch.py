"""Topics that a producer asks for: known, awaited, or an error."""

import pytest

from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError

WAIT_S = 30


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


@pytest.mark.parametrize("topic", ["\ud800", "t" * 40_000])
def test_a_name_that_does_not_fit_a_request_fails_alone(fake, produce, topic):
    fake.add_topic("t", [1])
    producer = produce()
    with pytest.raises(KafkaError, match="does not fit its field in a request Metadata") as failed:
        producer.send(topic, b"x")
    assert failed.value.code is ErrorCode.INVALID_REQUEST
    assert producer.send("t", b"x").result(WAIT_S).offset == 0
