"""One task reads ranges of several partitions, from brokers that the test spoils: a range in
trouble holds up no other one, and ends as it would in a task of its own.
"""

import time
from collections import Counter

import pyarrow as pa
import pytest

from connector.connections import close_all
from connector.errors import ConnectorError, DataLossError
from connector.options.source_options import parse_source_options
from connector.source import shared_reader, source_metadata
from connector.source.offset_range import OffsetRange
from connector.source.record_reader import read_records
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.client.fake_cluster import FakeCluster, Fault

pytestmark = pytest.mark.usefixtures("unknown_topics_are_told_soon")

PARTITIONS = 6
RECORDS = 100


@pytest.fixture
def fake(monkeypatch):
    """Topic t: six partitions over three leaders, a hundred records in ten batches in each."""
    monkeypatch.setattr(source_metadata, "GONE_PATIENCE_MS", 300)
    fake = FakeCluster()
    fake.add_topic("t", [1, 2, 3, 1, 2, 3])
    for number in range(PARTITIONS):
        _append(fake, number, 0, RECORDS)
    yield fake
    close_all()
    fake.close()


def _append(fake, partition, first, last):
    for start in range(first, last, 10):
        values = pa.array([b"%d" % each for each in range(start, start + 10)], pa.binary())
        (batch,) = encode_batches(values)
        fake.partition("t", partition).append(bytes(batch.data))


class Reading:
    """The rows that a task has yielded, and its error."""

    def __init__(self, fake, *, skip=0, after_first=lambda: None, **options):
        parsed = parse_source_options(
            {
                "bootstrap.servers": fake.bootstrap_servers,
                "subscribe": "t",
                "kafkaConsumer.pollTimeoutMs": "1000",
                "request.timeout.ms": "2000",
            }
            | options
        )
        self.ranges = tuple(
            OffsetRange(
                topic_partition=TopicPartition("t", number),
                start_offset=skip,
                end_offset=RECORDS,
                topic_id=fake.topic_ids["t"],
            )
            for number in range(PARTITIONS)
        )
        self.batches = []
        self.offsets: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.error = None
        try:
            for batch in read_records(parsed, self.ranges):
                self.batches.append(batch)
                for row in batch.select(["partition", "offset", "value"]).to_pylist():
                    assert row["value"] == b"%d" % row["offset"]
                    self.offsets[row["partition"]].append(row["offset"])
                if len(self.batches) == 1:
                    after_first()
        except ConnectorError as error:
            self.error = error

    def whole(self):
        """The partitions that were read from the first record to the last, each once, in order."""
        return {number for number, each in self.offsets.items() if each == list(range(RECORDS))}


ALL = set(range(PARTITIONS))


def test_ranges_with_the_same_leader_are_fetched_by_one_request(fake):
    reading = Reading(fake)
    assert reading.error is None
    assert reading.whole() == ALL
    assert len(reading.batches) == 1
    assert Counter(each.broker_id for each in fake.asked if each.api == "Fetch") == {
        1: 1,
        2: 1,
        3: 1,
    }
    assert fake.count("Metadata") == 1


def test_a_range_within_batches_is_read_exactly(fake):
    reading = Reading(fake, skip=33)
    assert set(map(tuple, reading.offsets.values())) == {tuple(range(33, RECORDS))}


def test_a_fetch_asks_for_little_more_than_its_ranges_have(fake):
    Reading(fake, skip=RECORDS - 10)
    asked = [each.message for each in fake.asked if each.api == "Fetch"]
    assert {part.partition_max_bytes for each in asked for part in each.partitions} == {64 << 10}


def test_what_a_task_has_fetched_ahead_is_bounded_however_many_leaders_there_are(fake, monkeypatch):
    monkeypatch.setattr(shared_reader, "HELD_BYTES", 96 << 10)
    monkeypatch.setattr(shared_reader, "LEAST_FETCH_BYTES", 1 << 10)
    assert Reading(fake).whole() == ALL
    sizes = {each.message.max_bytes for each in fake.asked if each.api == "Fetch"}
    assert sizes == {(96 << 10) // 3}


def test_small_fetches_interleave_partitions_and_keep_the_order_of_each(fake):
    reading = Reading(fake, **{"max.partition.fetch.bytes": "1024"})
    assert fake.count("Fetch") > 6
    assert reading.whole() == ALL


def test_a_partition_without_a_leader_is_an_error_after_its_siblings(fake):
    fake.move_leader("t", 1, -1)
    reading = Reading(fake)
    assert reading.whole() == ALL - {1}
    assert reading.error.code == "TIMED_OUT"
    assert str(reading.error).startswith("[TIMED_OUT] t-1 has no leader")


def test_a_partition_that_finds_a_leader_in_time_is_read(fake):
    fake.move_leader("t", 1, -1)
    # Its siblings are fetched; then somebody is elected.
    fake.fault = lambda asked: (
        fake.move_leader("t", 1, 3) if asked.api == "Metadata" and asked.number == 4 else None
    )
    reading = Reading(fake)
    assert reading.error is None
    assert reading.whole() == ALL


@pytest.mark.parametrize("broken", [Fault.DROP, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_leader_that_fails_now_and_then_delays_only(fake, broken):
    fake.fault = lambda asked: broken if asked.api == "Fetch" and asked.number % 2 else None
    reading = Reading(fake, **{"kafkaConsumer.pollTimeoutMs": "20000"})
    assert reading.error is None
    assert reading.whole() == ALL


def test_records_that_are_gone_cost_no_sibling_a_record(fake):
    fake.partition("t", 2).start_offset = 50
    strict = Reading(fake)
    assert isinstance(strict.error, DataLossError)
    assert "offset 0 of t-2 is wanted, but the log has the offsets from 50 to 100" in str(
        strict.error
    )
    assert strict.whole() == ALL - {2}
    lenient = Reading(fake, failOnDataLoss="false")
    assert lenient.error is None
    assert lenient.whole() == ALL - {2}
    assert lenient.offsets[2] == list(range(50, RECORDS))


def test_a_log_that_got_shorter_costs_no_sibling_a_record(fake):
    fake.partition("t", 4).lose_from(7)
    strict = Reading(fake)
    assert "t-4 is wanted up to offset 100, but now ends at 70" in str(strict.error)
    assert strict.whole() == ALL - {4}
    lenient = Reading(fake, failOnDataLoss="false")
    assert lenient.error is None
    assert lenient.offsets[4] == list(range(70))


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_log_that_was_truncated_under_a_task_costs_no_sibling_a_record(fake, fail):
    def lose():
        partition = fake.partition("t", 3)
        if partition.epoch == 0:
            fake.move_leader("t", 3, 2)
            partition.lose_from(0)
            _append(fake, 3, 0, RECORDS)

    small = {"max.partition.fetch.bytes": "1024"}

    def strike(asked):
        if asked.api == "Fetch" and any(
            part.partition == 3 and part.fetch_offset >= 10 for part in asked.message.partitions
        ):
            lose()

    fake.fault = strike
    reading = Reading(fake, failOnDataLoss=fail, **small)
    assert fake.partition("t", 3).epoch == 1
    if fail == "true":
        assert isinstance(reading.error, DataLossError)
        assert "t-3: the log was truncated" in str(reading.error)
        assert reading.whole() >= ALL - {3}
    else:
        assert reading.error is None
        assert reading.whole() == ALL


def test_a_partition_that_is_deleted_costs_no_sibling_a_record(fake):
    del fake.topics["t"][5]
    strict = Reading(fake)
    assert isinstance(strict.error, DataLossError)
    assert "t-5, wanted from offset 0 to 100, is gone" in str(strict.error)
    assert strict.whole() == ALL - {5}
    lenient = Reading(fake, failOnDataLoss="false")
    assert lenient.error is None
    assert lenient.whole() == ALL - {5}


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_partition_that_is_deleted_while_its_range_waits_costs_no_sibling_a_record(fake, fail):
    def strike(asked):
        if asked.api == "Fetch":
            fake.topics["t"].pop(5, None)

    fake.fault = strike
    patient = {"kafkaConsumer.pollTimeoutMs": "20000"}
    reading = Reading(fake, failOnDataLoss=fail, **patient)
    assert reading.whole() == ALL - {5}
    if fail == "true":
        assert isinstance(reading.error, DataLossError)
        assert "t-5, wanted from offset 0 to 100, is gone" in str(reading.error)
    else:
        assert reading.error is None


@pytest.mark.parametrize("newest_fetch", [17, 12], ids=["by id", "by name"])
def test_nothing_is_read_of_a_topic_that_is_created_again_under_a_task(fake, newest_fetch):
    """Also by brokers that know topics only by their names in fetches."""
    fake.api_versions[1] = (4, newest_fetch)
    leaders = [each.leader for each in fake.topics["t"].values()]

    def strike(asked):
        if asked.api == "Fetch" and asked.number == 5 and fake.partition("t").end_offset == RECORDS:
            fake.create_again("t", leaders)
            for number in range(PARTITIONS):
                # Longer, and with other values, which the reading would notice.
                _append(fake, number, RECORDS, 3 * RECORDS)

    fake.fault = strike
    small = {"kafka.max.partition.fetch.bytes": "1024"}
    reading = Reading(fake, **small)
    assert fake.partition("t").end_offset == 2 * RECORDS
    assert isinstance(reading.error, DataLossError)
    assert "its topic was deleted and created again since" in str(reading.error)
    assert reading.whole() == set()


def test_several_partitions_without_a_leader_are_waited_for_together(fake):
    for number in range(PARTITIONS):
        fake.move_leader("t", number, -1)
    started = time.monotonic()
    reading = Reading(fake)
    assert reading.error.code == "TIMED_OUT"
    assert time.monotonic() - started < 1.0 * PARTITIONS
