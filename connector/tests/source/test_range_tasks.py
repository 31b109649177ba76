"""Tasks of a limited size, by the sizes of the logs."""

import logging

from connector import log_once
from connector.errors import ConnectorError
from connector.options.offset_specs import EARLIEST
from connector.options.source_options import parse_source_options
from connector.source.offset_range import OffsetRange
from connector.source.range_tasks import range_tasks
from storage_engine.core.ids import TopicPartition

T0, T1, T2 = (TopicPartition("t", each) for each in range(3))


class Logs:
    """Partition 0 holds the offsets 100 to 199 in 5000 bytes, 1 is empty, the size of 2 is
    unknown."""

    sizes = {T0: 5000, T1: 0}  # noqa: RUF012

    def log_sizes(self, partitions):
        return {each: self.sizes[each] for each in partitions if each in self.sizes}

    def offsets_at(self, timestamps_ms):
        ends = {T0: (100, 200), T1: (7, 7), T2: (0, 10)}
        return {each: ends[each][at != EARLIEST] for each, at in timestamps_ms.items()}


class SilentLogs(Logs):
    def log_sizes(self, partitions):
        raise ConnectorError("UNSUPPORTED_VERSION", "no such request")


def _tasks(logs, *ranges, **options):
    parsed = parse_source_options({"bootstrap.servers": "h:1", "subscribe": "t"} | options)
    wanted = [
        OffsetRange(topic_partition=each, start_offset=start, end_offset=end)
        for each, start, end in ranges
    ]
    return [" ".join(map(str, task.value)) for task in range_tasks(parsed, logs, wanted)]


def test_small_ranges_share_a_task_unless_each_is_to_have_its_own():
    ranges = (T2, 0, 10), (T0, 120, 130)
    assert _tasks(Logs(), *ranges) == ["t-0 [120, 130) t-2 [0, 10)"]
    for one in ("0", "1"):
        tasks = _tasks(Logs(), *ranges, minRecordsPerPartition=one)
        assert tasks == ["t-0 [120, 130)", "t-2 [0, 10)"]
    assert len(_tasks(Logs(), *ranges, minPartitions="2")) == 2


def test_a_shared_task_has_no_more_bytes_than_maxBytesPerPartition():
    ranges = (T0, 120, 126), (T2, 0, 10)
    assert len(_tasks(Logs(), *ranges, maxBytesPerPartition="300")) == 1

    class Measured(Logs):
        sizes = {T0: 5000, T2: 500}  # noqa: RUF012

    assert len(_tasks(Measured(), *ranges, maxBytesPerPartition="800")) == 1
    assert len(_tasks(Measured(), *ranges, maxBytesPerPartition="799")) == 2


def test_a_partition_is_cut_by_its_bytes_for_an_offset():
    tasks = _tasks(Logs(), (T0, 120, 150), (T2, 0, 10), maxBytesPerPartition="500")
    assert tasks == ["t-0 [120, 130)", "t-0 [130, 140)", "t-0 [140, 150)", "t-2 [0, 10)"]


def test_a_record_larger_than_the_limit_still_makes_a_task():
    assert _tasks(Logs(), (T0, 120, 122), maxBytesPerPartition="1") == [
        "t-0 [120, 121)",
        "t-0 [121, 122)",
    ]


def test_the_smallest_of_all_limits_counts():
    tasks = _tasks(Logs(), (T0, 100, 110), maxBytesPerPartition="500", maxRecordsPerPartition="5")
    assert tasks == ["t-0 [100, 105)", "t-0 [105, 110)"]


def test_brokers_that_tell_no_sizes_cost_the_cut_and_no_record(caplog):
    log_once._logged.clear()
    with caplog.at_level(logging.WARNING):
        tasks = _tasks(SilentLogs(), (T0, 100, 200), maxBytesPerPartition="1")
    assert tasks == ["t-0 [100, 200)"]
    assert "'maxBytesPerPartition' has no effect" in caplog.text


def test_empty_ranges_are_no_tasks():
    assert _tasks(Logs(), (T1, 7, 7), maxBytesPerPartition="500") == []
