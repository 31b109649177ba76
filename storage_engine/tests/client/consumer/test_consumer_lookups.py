"""Numbers that are no offsets and no times are refused before brokers are asked."""

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
