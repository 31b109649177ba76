"""The streaming source's planning, with logs that the test prepares."""

import json
import pickle
import time
from uuid import UUID

import pytest

from connector.errors import ConnectorError, DataLossError, OptionError
from connector.options.source_options import parse_source_options
from connector.source import source_metadata, stream_reader
from connector.source.lag import OffsetsBehindLatest, lag_of
from connector.source.offset_range import OffsetRange
from connector.source.source_metadata import YOUNG_MS
from connector.source.stream_reader import HeadraceStreamReader
from connector.spark_classes import ReadAllAvailable, ReadMaxRows, ReadMinRows
from connector.tests.source.prepared_logs import T0, T1, Logs
from storage_engine.core.errors import ErrorCode


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(stream_reader, "IDLE_POLL_MS", 0)
    monkeypatch.setattr(stream_reader, "BEHIND_PATIENCE_MS", 0)
    monkeypatch.setattr(stream_reader, "RECREATED_PATIENCE_MS", 0)


def _reader(logs, **options):
    reader = HeadraceStreamReader(
        parse_source_options({"bootstrap.servers": "h:1", "subscribe": "t"} | options)
    )
    reader._metadata = logs
    return reader


def _latest(reader, start=None):
    """The end of the next micro-batch without a limit. None: of the first one."""
    start = reader.initialOffset() if start is None else start
    return reader.latestOffset(start, ReadAllAvailable())


def _planned(reader, start, end):
    return [each for task in reader.partitions(start, end) for each in task.value]


def _range(topic_partition, start_offset, end_offset, topic_id=1):
    return OffsetRange(
        topic_partition=topic_partition,
        start_offset=start_offset,
        end_offset=end_offset,
        topic_id=UUID(int=topic_id),
    )


def test_a_driver_killed_in_batch_0_with_latest_reads_what_came_meanwhile():
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs)
    logged = _latest(reader)
    logs.ends = {T0: (0, 50)}
    # Restarted on the checkpoint: the same end, a start that is asked for again.
    reader = _reader(logs)
    assert _planned(reader, reader.initialOffset(), logged) == []
    following = _latest(reader, logged)
    assert _planned(reader, logged, following) == [_range(T0, 5, 50)]


def test_a_driver_killed_in_batch_0_with_earliest_reads_the_same_batch_again():
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs, startingOffsets="earliest")
    logged = _latest(reader)
    logs.ends = {T0: (0, 50)}
    assert _planned(reader, reader.initialOffset(), logged) == [_range(T0, 0, 5)]


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": json.dumps({"t": {"0": 1}})},
        {"startingOffsetsByTimestamp": json.dumps({"t": {"0": 7}})},
    ],
)
def test_a_driver_killed_in_batch_0_needs_no_options_that_fit_an_added_partition(options):
    logs = Logs({T0: (0, 5)})
    logs.at = {7: 1}
    logged = _latest(_reader(logs, **options), {})
    logs.ends = {T0: (0, 50), T1: (0, 3)}
    reader = _reader(logs, **options)
    assert _planned(reader, reader.initialOffset(), logged) == [_range(T0, 1, 5)]
    following = _latest(reader, logged)
    assert _planned(reader, logged, following) == [_range(T0, 5, 50), _range(T1, 0, 3)]
    with pytest.raises(OptionError, match="must name every partition that is read, and lacks t-1"):
        _latest(reader)


def test_nothing_new_returns_the_very_same_offset():
    logs = Logs()
    reader = _reader(logs)
    start = _latest(reader)
    assert _latest(reader, start) is start


def test_a_limit_is_kept_and_all_available_ignores_it():
    logs = Logs({T0: (0, 100), T1: (0, 100)})
    reader = _reader(logs, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    assert reader.getDefaultReadLimit() == ReadMaxRows(10)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(10))["t"] == {"0": 5, "1": 5}
    assert _latest(reader, start)["t"] == {"0": 100, "1": 100}


def test_available_now_reads_up_to_what_was_there_and_ends():
    logs = Logs({T0: (0, 25)})
    reader = _reader(logs, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    reader.prepareForTriggerAvailableNow()
    logs.ends = {T0: (0, 99), T1: (0, 7)}
    ends: list[dict] = []
    offset = reader.initialOffset()
    while not ends or offset is not ends[-1]:
        ends.append(offset)
        offset = reader.latestOffset(offset, reader.getDefaultReadLimit())
    assert [end["t"]["0"] for end in ends[1:]] == [10, 20, 25]


def test_a_small_backlog_waits_for_the_minimum():
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs, minOffsetsPerTrigger="10", startingOffsets="earliest")
    assert reader.getDefaultReadLimit() == ReadMinRows(10)
    start = reader.latestOffset(reader.initialOffset(), ReadMinRows(10))
    logs.ends = {T0: (0, 9)}
    assert reader.latestOffset(start, ReadMinRows(10)) is start
    assert _latest(reader, start)["t"] == {"0": 9}
    logs.ends = {T0: (0, 15)}
    assert reader.latestOffset(start, ReadMinRows(10))["t"] == {"0": 15}


def test_an_added_partition_is_read_from_its_first_record():
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs)
    start = _latest(reader)
    logs.ends = {T0: (0, 5), T1: (0, 3)}
    end = _latest(reader, start)
    assert _planned(reader, start, end) == [_range(T1, 0, 3)]


def test_records_that_are_gone_stop_the_query_or_are_stepped_over():
    logs = Logs({T0: (0, 20)})
    start = {"t": {"0": 5}, "@from": {"t": {"0": 0}}}
    end = _latest(_reader(logs), start)
    logs.ends = {T0: (12, 20)}
    with pytest.raises(DataLossError, match="offset 5 of t-0 is wanted, but the log begins at 12"):
        _reader(logs).partitions(start, end)
    lenient = _reader(logs, failOnDataLoss="false")
    assert _planned(lenient, start, end) == [_range(T0, 12, 20)]


def test_a_limit_does_not_count_records_that_are_gone():
    """A query that was down for longer than records are kept."""
    logs = Logs({T0: (1_000_000, 1_000_020), T1: (0, 5)})
    reader = _reader(logs, failOnDataLoss="false", maxOffsetsPerTrigger="10")
    offset = {"t": {"0": 5, "1": 5}, "@from": {"t": {"0": 0, "1": 0}}, "@ids": {"t": f"{1:032x}"}}
    read = []
    for _ in range(4):
        end = reader.latestOffset(offset, ReadMaxRows(10))
        read += _planned(reader, offset, end)
        offset = end
    assert read == [_range(T0, 1_000_000, 1_000_010), _range(T0, 1_000_010, 1_000_020)]
    assert reader.latestOffset(offset, ReadMaxRows(10)) is offset


def test_a_topic_created_again_stops_the_query_or_is_read_from_its_first_record():
    logs = Logs({T0: (0, 20)})
    start = {"t": {"0": 100}, "@from": {"t": {"0": 90}}}
    with pytest.raises(DataLossError, match="cut, or deleted and created again"):
        _latest(_reader(logs), start)
    lenient = _reader(logs, failOnDataLoss="false")
    end = _latest(lenient, start)
    assert _planned(lenient, start, end) == [_range(T0, 0, 20)]


def test_a_topic_created_again_is_noticed_by_its_id_although_it_is_longer_than_what_was_read():
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs, startingOffsets="earliest")
    start = _latest(reader)
    logs.ends, logs.ids = {T0: (0, 20)}, {"t": UUID(int=2)}
    with pytest.raises(DataLossError, match="t-0 was read up to offset 5, and its topic was del"):
        _latest(reader, start)
    lenient = _reader(logs, failOnDataLoss="false")
    end = _latest(lenient, start)
    assert _planned(lenient, start, end) == [_range(T0, 0, 20, topic_id=2)]
    assert _latest(lenient, end) is end


def test_a_planned_batch_of_a_topic_created_again_since_is_never_read_from_the_new_one():
    logs = Logs({T0: (0, 20)})
    reader = _reader(logs, startingOffsets="earliest")
    start = reader.initialOffset()
    end = _latest(reader, start)
    logs.ids = {"t": UUID(int=2)}
    with pytest.raises(DataLossError, match="wanted from offset 0 to 20, but its topic was delet"):
        reader.partitions(start, end)
    lenient = _reader(logs, failOnDataLoss="false")
    assert lenient.partitions(start, end) == []
    following = _latest(lenient, end)
    assert _planned(lenient, end, following) == [_range(T0, 0, 20, topic_id=2)]


def test_one_broker_with_old_metadata_makes_no_loss(monkeypatch):
    monkeypatch.setattr(stream_reader, "RECREATED_PATIENCE_MS", 60_000)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    logs = Logs()
    reader = _reader(logs)
    start = _latest(reader)
    answers = iter([{"t": UUID(int=2)}, {"t": UUID(int=2)}, {"t": UUID(int=1)}])
    find = logs.find

    def find_by_turns(subscription, *, max_age_ms=None):
        logs.ids = next(answers)
        return find(subscription)

    monkeypatch.setattr(logs, "find", find_by_turns)
    assert _latest(reader, start) is start
    assert next(answers, None) is None


def test_a_partition_that_is_gone_is_reported_once():
    logs = Logs({T0: (0, 5)})
    start = {"t": {"0": 5, "1": 9}, "@from": {"t": {"0": 5, "1": 9}}}
    with pytest.raises(DataLossError, match="t-1, read up to offset 9, is gone"):
        _latest(_reader(logs), start)
    lenient = _reader(logs, failOnDataLoss="false")
    end = _latest(lenient, start)
    assert end["t"] == {"0": 5}
    assert _latest(lenient, end) is end


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_the_query_may_not_see_any_more_ends_it_and_loses_no_place(fail):
    """Else all of it would come twice when the right is there again."""
    logs = Logs()
    logs.ends, logs.ids = {}, {}
    logs.refused = {"t": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    start = {"t": {"0": 5}, "@from": {"t": {"0": 5}}}
    with pytest.raises(ConnectorError, match=r"^\[TOPIC_AUTHORIZATION_FAILED\] the topic 't': not"):
        _latest(_reader(logs, failOnDataLoss=fail), start)


def test_an_idle_source_waits_and_then_asks_so_that_no_answer_is_old(monkeypatch):
    pauses: list[float] = []
    monkeypatch.setattr(stream_reader, "IDLE_POLL_MS", 60_000)
    monkeypatch.setattr(time, "sleep", pauses.append)
    logs = Logs()
    reader = _reader(logs)
    start = _latest(reader)
    assert _latest(reader, start) is start
    logs.ends = {T0: (0, 8)}
    assert _latest(reader, start)["t"] == {"0": 8}
    assert [round(pause) for pause in pauses] == [0, 0, 60]


def test_the_latest_offset_of_the_progress_costs_no_question():
    logs = Logs()
    reader = _reader(logs)
    _latest(reader)
    logs.questions = 0
    assert reader.reportLatestOffset()["t"] == {"0": 0}
    assert logs.questions == 0


def test_the_latest_offset_of_the_progress_tells_how_far_the_batch_ends_before_it():
    logs = Logs({T0: (0, 100), T1: (0, 20)})
    reader = _reader(logs, startingOffsets="earliest", maxOffsetsPerTrigger="60")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(60))
    assert end["t"] == {"0": 50, "1": 10}
    assert reader.reportLatestOffset() == {
        "t": {"0": 100, "1": 20},
        "@lag": {
            "minOffsetsBehindLatest": 10,
            "maxOffsetsBehindLatest": 50,
            "avgOffsetsBehindLatest": 30.0,
        },
    }
    end = _latest(reader, end)
    assert lag_of(json.dumps(reader.reportLatestOffset())) == OffsetsBehindLatest(
        minimum=0, maximum=0, average=0.0
    )


def test_a_stream_that_waits_for_the_minimum_is_behind_by_what_it_leaves():
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs, minOffsetsPerTrigger="10", startingOffsets="earliest")
    start = reader.latestOffset(reader.initialOffset(), ReadMinRows(10))
    logs.ends = {T0: (0, 9)}
    assert reader.latestOffset(start, ReadMinRows(10)) is start
    assert reader.reportLatestOffset()["@lag"]["maxOffsetsBehindLatest"] == 4


def test_a_reader_can_be_sent_to_a_task():
    reader = pickle.loads(pickle.dumps(_reader(Logs())))
    assert list(reader.read.__self__._options.subscription.names) == ["t"]


def test_a_checkpoint_of_another_source_is_told():
    with pytest.raises(ConnectorError, match="BAD_CHECKPOINT"):
        _reader(Logs()).latestOffset({"logOffset": 1}, ReadAllAvailable())


class Noted:
    """Stands for GroupOffsetCommits."""

    def __init__(self):
        self.notes = []
        self.closed = False

    def note(self, group, positions):
        self.notes.append((group, dict(positions)))

    def close(self):
        self.closed = True


def test_a_group_is_told_what_is_done_also_the_last_batch_and_never_what_is_only_planned():
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs, **{"startingOffsets": "earliest", "kafka.group.id": "g"})
    reader._group_commits = committed = Noted()
    first = _latest(reader)
    assert committed.notes == []
    logs.ends = {T0: (0, 8)}
    second = _latest(reader, first)
    reader.commit(first)
    assert committed.notes == [("g", {T0: 5})] * 2
    # Idle: Spark never commits the last batch.
    assert _latest(reader, second) is second
    assert committed.notes[-1] == ("g", {T0: 8})
    reader.stop()
    assert committed.closed


def test_the_group_of_a_prefix_is_the_same_after_a_restart_and_another_for_a_new_query():
    groups = []
    for _ in range(2):
        offset = _reader(Logs(), groupIdPrefix="p").initialOffset()
        for _ in range(2):
            reader = _reader(Logs(), groupIdPrefix="p")
            reader._group_commits = committed = Noted()
            offset = _latest(reader, offset)
            reader.commit(offset)
            groups.append(committed.notes[-1][0])
    assert groups[0] == groups[1] != groups[2] == groups[3]
    assert all(group.startswith("p-") for group in groups)


def test_without_a_group_nobody_is_told():
    logs = Logs()
    reader = _reader(logs)
    first = _latest(reader)
    _latest(reader, first)
    reader.commit(first)
    assert reader._group_commits is None


def test_a_busy_query_hands_out_ranges_without_asking_again():
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs, startingOffsets="earliest")
    first = _latest(reader)
    assert logs.surveys == 0
    assert _planned(reader, reader.initialOffset(), first) == [_range(T0, 0, 5)]
    assert logs.metadata_ages == [0]
    logs.ends = {T0: (2, 9)}
    second = _latest(reader, first)
    assert logs.surveys == 1
    asked = logs.questions
    assert _planned(reader, first, second) == [_range(T0, 5, 9)]
    assert logs.questions == asked
    assert logs.metadata_ages == [0, YOUNG_MS]


def test_an_idle_query_does_not_ask_for_what_only_ranges_need():
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs, startingOffsets="earliest")
    first = _latest(reader)
    for _ in range(3):
        assert _latest(reader, first) == first
    assert logs.surveys == 1
    logs.ends = {T0: (0, 6)}
    second = _latest(reader, first)
    asked = logs.questions
    assert _planned(reader, first, second) == [_range(T0, 5, 6)]
    assert logs.questions == asked + 1
    assert logs.metadata_ages == [0]


def test_what_a_survey_told_long_ago_is_asked_again(monkeypatch):
    logs = Logs({T0: (0, 5)})
    reader = _reader(logs, startingOffsets="earliest", failOnDataLoss="false")
    first = _latest(reader)
    logs.ends = {T0: (0, 9)}
    second = _latest(reader, first)
    logs.ends = {T0: (7, 9)}
    monkeypatch.setattr(source_metadata, "YOUNG_MS", -1)
    assert _planned(reader, first, second) == [_range(T0, 7, 9)]
    assert logs.metadata_ages == [0]
