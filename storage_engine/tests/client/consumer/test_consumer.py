"""What a poll returns: an error of one partition costs no other a record or its turn (R-CLI2)."""

import pytest

from storage_engine.client import ConfigError, Consumer, TopicPartition
from storage_engine.core.errors import OffsetOutOfRangeError
from storage_engine.tests.client.support.batches import append_records

GOOD, BAD = TopicPartition("t", 0), TopicPartition("t", 1)
BEYOND = 999
POLLS = 12


@pytest.fixture(params=[[1, 1], [1, 2], [2, 1]], ids=str)
def two(fake, request):
    """Two partitions of these leaders, with 30 records in the first."""
    fake.add_topic("t", request.param)
    for number in range(30):
        append_records(fake, [b"%d" % number])
    return fake


def consumer(fake, order):
    made = Consumer({"bootstrap.servers": fake.bootstrap_servers, "auto.offset.reset": "none"})
    made.assign(order)
    for tp in order:
        made.seek(tp, BEYOND if tp == BAD else 0)
    return made


def polled(made, count, least_errors=0):
    """The offsets of the good partition, and how often an error came."""
    offsets: list[int] = []
    errors = 0
    for _ in range(POLLS):
        if len(offsets) >= count and errors >= least_errors:
            break
        try:
            offsets += [record.offset for record in made.poll(300)]
        except OffsetOutOfRangeError:
            errors += 1
    return offsets, errors


@pytest.mark.parametrize("order", [(GOOD, BAD), (BAD, GOOD)], ids=["good first", "bad first"])
def test_a_consumer_gets_every_record_of_a_partition_beside_one_that_is_out_of_range(two, order):
    with consumer(two, order) as made:
        offsets, errors = polled(made, 30, least_errors=2)
        assert offsets == list(range(30))
        assert errors == 2


def test_an_offset_out_of_range_is_told_each_time_until_somebody_seeks(two):
    with consumer(two, (BAD,)) as made:
        assert polled(made, 1) == ([], POLLS)
        made.seek(BAD, 0)
        made.assign((BAD, GOOD))
        made.seek(GOOD, 0)
        assert polled(made, 30) == (list(range(30)), 0)


def test_a_partition_is_read_on_from_where_it_was_sought_after_an_error_of_another(two):
    """What came beside the error is of the position before."""
    with consumer(two, (GOOD, BAD)) as made:
        assert polled(made, 0, least_errors=1)[1] == 1
        made.seek(BAD, 0)
        made.seek(GOOD, 20)
        assert polled(made, 10)[0] == list(range(20, 30))


def test_a_poll_for_less_than_one_record_is_refused():
    with Consumer({"bootstrap.servers": "127.0.0.1:1"}) as made:
        made.assign([GOOD])
        for wrong in (-3, 0):
            with pytest.raises(ConfigError, match=f"max_records is {wrong}; it must be 1 or more"):
                made.poll(10, max_records=wrong)
