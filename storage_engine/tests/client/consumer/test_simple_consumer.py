"""A consumer whose caller keeps the offsets (R-CLI2)."""

import time

import pytest

from storage_engine.client import EARLIEST, LATEST, SimpleConsumer
from storage_engine.core.errors import ConfigError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.client.support.batches import append_records

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def filled(fake):
    """Two partitions of two leaders; the first has ten records in batches of one."""
    fake.add_topic("t", [1, 2])
    for number in range(10):
        append_records(fake, [b"%d" % number])
    return fake


@pytest.fixture
def consumer(filled):
    with SimpleConsumer(filled.bootstrap_servers) as made:
        yield made


def test_it_begins_where_it_is_told_each_time(consumer):
    for _ in range(2):
        found = consumer.fetch(("t", 0), 7, max_wait_ms=60_000)
        assert [message.value for message in found.messages] == [b"7", b"8", b"9"]
        assert (found.next_offset, found.high_watermark) == (10, 10)


def test_the_end_of_a_log_is_nothing_yet_and_beyond_it_is_an_error(consumer):
    assert consumer.fetch(T0, 10, max_wait_ms=100)[:2] == ([], 10)
    with pytest.raises(OffsetOutOfRangeError, match=r"0 to 10"):
        consumer.fetch(T0, 11, max_wait_ms=60_000)
    with pytest.raises(ConfigError, match="t-0: the offset -1 is negative"):
        consumer.fetch(T0, -1)


def test_a_partition_without_messages_holds_up_no_other_for_long(consumer):
    began_s = time.monotonic()
    found = consumer.multifetch({T0: 8, T1: 0}, max_wait_ms=90_000)
    assert time.monotonic() - began_s < 60
    assert [len(found[tp].messages) for tp in (T0, T1)] == [2, 0]
    assert found[T1].next_offset == 0


@pytest.mark.parametrize(
    ("time_ms", "most", "offsets"),
    [
        (LATEST, 1, [10]),
        (LATEST, 2, [10, 0]),
        (LATEST, 3, [10, 5, 0]),
        (LATEST, 99, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (EARLIEST, 3, [0]),
    ],
)
def test_offsets_divide_what_lies_before_a_time(consumer, time_ms, most, offsets):
    assert consumer.offsets_before(T0, time_ms, most) == offsets


def test_no_offsets_at_all_are_not_asked_for(consumer):
    with pytest.raises(ConfigError, match="0 offsets are asked for; it must be 1 or more"):
        consumer.offsets_before(T0, LATEST, 0)
