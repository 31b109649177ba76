"""A stream hands out what its ledger lets it, each record once (R-CLI3)."""

from dataclasses import replace

import pytest

from storage_engine.client.zookeeper_consumer.connector_config import ConnectorConfig
from storage_engine.client.zookeeper_consumer.ledger import StreamLedger
from storage_engine.client.zookeeper_consumer.message_stream import MessageStream
from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_with_sleep_ms
from storage_engine.tests.client.support.batches import append_records

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
RECORDS = 10
LONG_MS = 30_000


class Lease:
    lease_end_monotonic_ms = monotonic_with_sleep_ms() + 3_600_000


@pytest.fixture
def ledger(fake):
    """Of partitions of two leaders with ten records each."""
    fake.add_topic("t", [1, 2])
    for number in (0, 1):
        append_records(fake, [b"%d" % n for n in range(RECORDS)], partition=number)
    made = StreamLedger(Lease())
    made.set_brokers(fake.bootstrap_servers)
    return made


@pytest.fixture
def stream(ledger):
    config = ConnectorConfig.of({"zookeeper.connect": "h:1", "group.id": "g"}).streams
    made = MessageStream(replace(config, auto_offset_reset="earliest"), ledger)
    yield made
    made.close()


def test_it_begins_where_the_group_has_committed_and_counts_what_is_asked_for_next(ledger, stream):
    ledger.give({A: 7})
    assert [record.offset for record in stream.poll(LONG_MS)] == [7, 8, 9]
    assert stream.partitions == {A}
    assert ledger.positions() == {A: 7}
    assert stream.poll(0) == []
    assert ledger.positions() == {A: 10}


def test_records_and_polls_may_be_taken_by_turns(ledger, stream):
    ledger.give({A: 0})
    assert [next(stream).offset, next(stream).offset] == [0, 1]
    assert [record.offset for record in stream.poll(LONG_MS, max_records=3)] == [2, 3, 4]
    with pytest.raises(ConfigError, match="max_records is 0; it must be 1 or more"):
        stream.poll(LONG_MS, max_records=0)
    assert next(stream).offset == 5


def test_nothing_is_handed_out_of_a_partition_that_was_taken_away(ledger, stream):
    ledger.give({A: 0})
    assert next(stream).offset == 0
    assert ledger.revoke([A]) == {A: 0}, "the record that was handed out last does not count"
    ledger.give({B: 4})
    assert [record.partition for record in stream.poll(LONG_MS)] == [1] * 6
    assert stream.partitions == {B}


def test_a_partition_that_is_given_again_is_read_from_its_new_offset(ledger, stream):
    """Also by turns: what was buffered under the old claim is of no use."""
    ledger.give({A: 0})
    assert next(stream).offset == 0
    ledger.revoke([A])
    ledger.give({A: 7})
    assert [record.offset for record in stream.poll(LONG_MS, max_records=1)] == [7]
    assert next(stream).offset == 8


def test_a_paused_partition_stays_the_streams_and_a_foreign_one_is_refused(ledger, stream):
    ledger.give({A: 0, B: 0})
    assert stream.poll(0) == []
    stream.pause([A])
    assert [record.partition for record in stream.poll(LONG_MS)] == [1] * RECORDS
    assert stream.poll(200) == []
    assert stream.partitions == {A, B}
    stream.resume([A])
    assert {record.partition for record in stream.poll(LONG_MS)} == {0}
    with pytest.raises(ConfigError, match="u-0 is not read by this stream"):
        stream.pause([TopicPartition("u", 0)])


def test_a_loop_over_a_stream_ends_with_its_connector(ledger, stream):
    ledger.give({A: 0})
    seen = []
    for record in stream:
        seen.append(record.offset)
        if len(seen) == 3:
            ledger.close()
    assert seen == [0, 1, 2]
    assert stream.poll(LONG_MS) == []
