"""Reading a range in a task, with fetches that the test prepares."""

from types import SimpleNamespace
from uuid import UUID

import pyarrow as pa
import pytest

from connector.errors import ConnectorError, DataLossError
from connector.options.source_options import parse_source_options
from connector.source import record_reader, shared_reader, source_metadata
from connector.source.offset_range import OffsetRange
from connector.source.record_reader import read_records
from storage_engine.client.fetching.fetched_batches import FetchedBatches
from storage_engine.client.metadata import ClusterMetadata, Leader, TopicMetadata
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    KafkaError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import TRANSACTIONAL_BIT, patch, read_header, seal
from storage_engine.protocol.records.record_encoder import encode_batches

T0 = TopicPartition("t", 0)


def _batch(first_offset, count):
    values = pa.array([str(first_offset + number) for number in range(count)], pa.binary())
    (encoded,) = encode_batches(values)
    data = bytearray(encoded.data)
    patch(data, 0, base_offset=first_offset, leader_epoch=0)
    return memoryview(data)


def fetcher_of(read_range):
    """In place of a `BatchFetcher` of one range."""

    def made(cluster, ranges, **settings):
        ((tp, bounds),) = ranges.items()
        return SimpleNamespace(read=lambda: read_range(tp, *bounds, **settings))

    return made


class Log:
    """Partition 0 of a topic, in batches of 10 records."""

    def __init__(self, monkeypatch):
        self.first, self.end = 0, 100
        self.fail_once_at = None
        self.error = None
        self.asked_from = []
        monkeypatch.setattr(shared_reader, "BatchFetcher", fetcher_of(self.read_range))
        for module in (record_reader, shared_reader):
            monkeypatch.setattr(module, "cluster_for", lambda options: self)

    def known_leader(self, tp):
        return Leader(1, 0)

    def metadata(self, topics, *, max_age_ms):
        pass

    def list_offsets(self, timestamps_ms, *, isolation):
        return dict.fromkeys(timestamps_ms, self.end)

    def read_range(self, tp, start_offset, end_offset, **settings):
        self.asked_from.append(start_offset)
        if not self.first <= start_offset <= self.end:
            raise OffsetOutOfRangeError(
                "out of range", log_start_offset=self.first, log_end_offset=self.end
            )
        for first in range(start_offset // 10 * 10, min(end_offset, self.end), 10):
            if self.error is not None and first == self.fail_once_at:
                self.fail_once_at = None
                raise self.error
            yield FetchedBatches(
                tp, _batch(first, 10), first, first + 10, self.end, self.end, self.first, ()
            )
        if end_offset > self.end:
            raise DeadlineExceededError("t-0: offset 100 has not come")


@pytest.fixture
def log(monkeypatch):
    return Log(monkeypatch)


def _read(start_offset, end_offset, **options):
    parsed = parse_source_options({"bootstrap.servers": "h:1", "subscribe": "t"} | options)
    wanted = OffsetRange(topic_partition=T0, start_offset=start_offset, end_offset=end_offset)
    batches = list(read_records(parsed, (wanted,)))
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def test_a_range_within_batches_is_read_exactly(log):
    assert _read(3, 27) == list(range(3, 27))


def test_records_lost_before_the_range_stop_the_task_or_are_stepped_over(log):
    log.first = 40
    with pytest.raises(DataLossError) as raised:
        _read(5, 60)
    assert "offset 5 of t-0 is wanted, but the log has the offsets from 40 to 100" in str(
        raised.value
    )
    assert _read(5, 60, failOnDataLoss="false") == list(range(40, 60))
    assert _read(5, 30, failOnDataLoss="false") == []


def test_a_log_that_got_shorter_stops_the_task_or_ends_the_range(log):
    with pytest.raises(DataLossError, match="t-0 is wanted up to offset 120, but now ends at 100"):
        _read(90, 120)
    assert _read(90, 120, failOnDataLoss="false") == list(range(90, 100))
    assert _read(110, 120, failOnDataLoss="false") == []


def test_a_loss_in_the_middle_neither_repeats_nor_drops_what_is_there(log):
    log.fail_once_at = 50
    log.error = OffsetOutOfRangeError("gone", log_start_offset=70, log_end_offset=100)
    offsets = _read(0, 100, failOnDataLoss="false")
    assert offsets == sorted(set(offsets))
    assert set(range(70, 100)) <= set(offsets)


def test_a_log_that_was_truncated_is_a_loss_and_read_on_where_that_does_not_matter(log):
    for fail in ("true", "false"):
        log.fail_once_at = 50
        log.error = LogTruncatedError("t-0: truncated", offset=50, truncation_offset=20)
        if fail == "true":
            with pytest.raises(DataLossError, match="t-0: truncated"):
                _read(0, 100, failOnDataLoss=fail)
        else:
            assert _read(0, 100, failOnDataLoss=fail) == list(range(100))


def test_a_timeout_with_the_records_there_is_passed_on_in_one_line(log):
    log.fail_once_at = 20
    log.error = DeadlineExceededError("t-0: no leader (waited 5 ms)")
    with pytest.raises(ConnectorError, match=r"^\[TIMED_OUT\] t-0: no leader"):
        _read(0, 100)


def test_records_of_aborted_transactions_are_no_rows(log, monkeypatch):
    """Each of several fetches names the aborted transactions of its own range."""

    def in_transaction(first_offset, producer_id):
        data = _batch(first_offset, 10)
        header = read_header(data)
        attributes = header.attributes | TRANSACTIONAL_BIT
        seal(data, 0, header._replace(attributes=attributes, producer_id=producer_id))
        return data

    def read_range(tp, start_offset, end_offset, **settings):
        assert settings["isolation"] == "read_committed"
        for first in range(0, 60, 20):
            two = bytes(in_transaction(first, 1)) + bytes(in_transaction(first + 10, 2))
            yield FetchedBatches(tp, memoryview(two), first, first + 20, 60, 60, 0, ((1, 0),))

    monkeypatch.setattr(shared_reader, "BatchFetcher", fetcher_of(read_range))
    assert _read(0, 60) == [*range(10, 20), *range(30, 40), *range(50, 60)]


def test_headers_come_only_when_asked_for(log):
    parsed = parse_source_options(
        {"bootstrap.servers": "h:1", "subscribe": "t", "includeHeaders": "true"}
    )
    wanted = OffsetRange(topic_partition=T0, start_offset=0, end_offset=10)
    (batch,) = read_records(parsed, (wanted,))
    assert batch.column("headers").null_count == 10


class Topics:
    """Answers another id of topic t each time, and the last one from then on."""

    def __init__(self, monkeypatch, *ids):
        self._ids = list(ids)
        monkeypatch.setattr(source_metadata, "GONE_PATIENCE_MS", 0)
        monkeypatch.setattr(source_metadata, "cluster_for", lambda options: self)

    def metadata(self, names, *, max_age_ms):
        topic_id = self._ids.pop(0) if len(self._ids) > 1 else self._ids[0]
        topic = TopicMetadata(
            topic="t", topic_id=topic_id, is_internal=False, partitions=dict.fromkeys([0])
        )
        return ClusterMetadata(topics={"t": topic})


def _read_with_id(**options):
    parsed = parse_source_options({"bootstrap.servers": "h:1", "subscribe": "t"} | options)
    wanted = OffsetRange(topic_partition=T0, start_offset=0, end_offset=20, topic_id=UUID(int=1))
    return sum(batch.num_rows for batch in read_records(parsed, (wanted,)))


def test_a_range_of_a_topic_created_again_is_not_read(log, monkeypatch):
    Topics(monkeypatch, UUID(int=2))
    with pytest.raises(DataLossError, match="topic was deleted and created again since"):
        _read_with_id()
    assert _read_with_id(failOnDataLoss="false") == 0
    assert log.asked_from == []


def test_what_is_left_of_a_topic_created_again_while_it_is_read_is_a_loss(log, monkeypatch):
    for fail in ("true", "false"):
        Topics(monkeypatch, UUID(int=1), UUID(int=2))
        log.fail_once_at = 10
        log.error = KafkaError("t is another one now", ErrorCode.UNKNOWN_TOPIC_ID)
        if fail == "true":
            with pytest.raises(DataLossError, match=r"t-0 is wanted from offset 0 to 20, but its"):
                _read_with_id(failOnDataLoss=fail)
        else:
            # So few records are decoded together with those that did not come.
            assert _read_with_id(failOnDataLoss=fail) == 0


def test_a_broker_that_does_not_know_the_id_yet_only_delays(log, monkeypatch):
    Topics(monkeypatch, UUID(int=1))
    log.fail_once_at = 10
    log.error = KafkaError("unknown", ErrorCode.UNKNOWN_TOPIC_ID)
    assert _read_with_id() == 20
