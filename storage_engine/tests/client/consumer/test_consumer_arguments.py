"""What a consumer is given and can't be meant is refused before anything is asked of brokers."""

import pytest

from storage_engine.client import ConfigError, Consumer, TopicPartition

TP = TopicPartition("t", 0)


@pytest.fixture
def consumer():
    with Consumer({"bootstrap.servers": "127.0.0.1:1"}) as made:
        made.assign([TP])
        yield made


@pytest.mark.parametrize("number", [-1, -5, 1 << 63, 1 << 70])
def test_numbers_that_are_no_offsets_and_no_times_are_refused(consumer, number):
    with pytest.raises(ConfigError, match=f"{number} is not an offset of a log"):
        consumer.seek(TP, number)
    with pytest.raises(ConfigError, match=f"t-0: {number} is not a time in milliseconds"):
        consumer.offsets_for_times({TP: number})


def test_a_poll_for_less_than_one_record_is_refused(consumer):
    with pytest.raises(ConfigError, match="max_records is -3; it must be 1 or more"):
        consumer.poll(10, max_records=-3)
