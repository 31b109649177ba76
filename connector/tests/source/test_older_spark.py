"""The streaming source on a Spark before 4.2, as that calls it: the latest offset before the
initial one, and the place of a restarted query by `partitions` with equal offsets.
"""

import json

import pytest

from connector.errors import ConnectorError, DataLossError, OptionError
from connector.options.source_options import parse_source_options
from connector.source import stream_reader
from connector.source.older_spark import OlderSparkStreamReader
from connector.spark_classes import ReadAllAvailable
from connector.tests.source.prepared_logs import T0, T1, Logs


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(stream_reader, "IDLE_POLL_MS", 0)
    monkeypatch.setattr(stream_reader, "BEHIND_PATIENCE_MS", 0)
    monkeypatch.setattr(stream_reader, "RECREATED_PATIENCE_MS", 0)


def ranges(tasks):
    """The ranges that tasks read, in the order of the tasks."""
    return [str(each) for task in tasks for each in task.value]


class Query:
    """Calls the reader as Spark 4.0 and 4.1 do, with the offset log and the commit log of one
    checkpoint. `read` is what its micro-batches have read, as partition, start and end."""

    def __init__(self, logs, *, names_the_place=True, **options):
        self.logs = logs
        self.options = {"bootstrap.servers": "h:1", "subscribe": "t"} | options
        self.names_the_place = names_the_place
        self.offsets = []
        self.committed = 0
        self.read = []
        self.start()

    def start(self):
        """A new process, on the checkpoint."""
        self.reader = OlderSparkStreamReader(parse_source_options(self.options))
        self.reader._metadata = self.logs
        if self.offsets and self.names_the_place:
            assert self.reader.partitions(self._end(-1), self._end(-1)) == []
        if len(self.offsets) > self.committed:
            self.run()

    def trigger(self, *, unused=False):
        """Plans a micro-batch and runs it. Whether there was one."""
        if not self.plan():
            return False
        self.run(unused=unused)
        return True

    def plan(self):
        """Whether there is something new, which then stands in the offset log."""
        end = json.dumps(self.reader.latestOffset())
        if self.offsets and self.offsets[-1] == end:
            return False
        self.offsets.append(end)
        if len(self.offsets) > 1:
            self.reader.commit(self._end(-2))
        return True

    def run(self, *, unused=False):
        """Reads the last micro-batch of the offset log, unless its rows are of no use."""
        start = self._end(-2) if len(self.offsets) > 1 else self.reader.initialOffset()
        if not unused:
            self.read += ranges(self.reader.partitions(start, self._end(-1)))
        self.committed += 1

    def _end(self, index):
        return json.loads(self.offsets[index])


def _logs(**ends):
    return Logs({T0: (0, ends.get("t0", 0))} | ({T1: (0, ends["t1"])} if "t1" in ends else {}))


def test_a_query_reads_each_record_once():
    logs = _logs(t0=5, t1=2)
    query = Query(logs, startingOffsets="earliest")
    assert query.trigger()
    assert not query.trigger()
    logs.ends = {T0: (0, 9), T1: (0, 2)}
    assert query.trigger()
    assert query.read == ["t-0 [0, 5)", "t-1 [0, 2)", "t-0 [5, 9)"]


def test_latest_is_pinned_by_the_first_question_although_the_initial_offset_is_asked_for_later():
    logs = _logs(t0=5)
    query = Query(logs)
    assert query.plan()
    logs.ends = {T0: (0, 8)}
    query.run()
    assert query.trigger()
    assert query.read == ["t-0 [5, 8)"]


def test_a_driver_killed_in_batch_0_with_latest_reads_what_came_meanwhile():
    logs = _logs(t0=5)
    query = Query(logs)
    assert query.plan()
    logs.ends = {T0: (0, 50)}
    query.start()
    assert query.read == []
    assert query.trigger()
    assert query.read == ["t-0 [5, 50)"]


def test_a_driver_killed_in_batch_0_needs_no_options_that_fit_an_added_partition():
    logs = _logs(t0=5)
    query = Query(logs, startingOffsets=json.dumps({"t": {"0": 1}}))
    assert query.plan()
    logs.ends = {T0: (0, 50), T1: (0, 3)}
    query.start()
    assert query.trigger()
    assert query.read == ["t-0 [1, 5)", "t-0 [5, 50)", "t-1 [0, 3)"]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
@pytest.mark.parametrize("names_the_place", [True, False])
@pytest.mark.parametrize("done", [True, False])
def test_a_restart_goes_on_from_the_offset_log(starting, names_the_place, done):
    logs = _logs(t0=0)
    query = Query(logs, startingOffsets=starting, names_the_place=names_the_place)
    assert query.trigger()
    logs.ends = {T0: (0, 70)}
    assert query.plan()
    if done:
        query.run()
    query.start()
    logs.ends = {T0: (0, 90), T1: (0, 4)}
    assert query.trigger()
    assert query.read == ["t-0 [0, 70)", "t-0 [70, 90)", "t-1 [0, 4)"]


def test_nothing_new_after_a_restart_makes_no_micro_batch():
    query = Query(_logs(t0=5), startingOffsets="earliest")
    assert query.trigger()
    query.start()
    assert not query.trigger()
    assert query.read == ["t-0 [0, 5)"]


def test_micro_batches_whose_rows_nobody_asked_for_are_not_read_again():
    logs = _logs(t0=5)
    query = Query(logs, startingOffsets="earliest")
    assert query.trigger(unused=True)
    for end, unused in ((7, True), (9, False), (12, True), (14, True), (20, False)):
        logs.ends = {T0: (0, end)}
        assert query.trigger(unused=unused)
        assert not query.trigger()
    assert query.read == ["t-0 [7, 9)", "t-0 [14, 20)"]


def test_a_cut_log_stops_the_query_or_is_read_on_from_its_end():
    logs = _logs(t0=100)
    query = Query(logs, startingOffsets="earliest")
    lenient = Query(logs, startingOffsets="earliest", failOnDataLoss="false")
    assert query.trigger() and lenient.trigger()
    logs.ends = {T0: (0, 20)}
    with pytest.raises(DataLossError, match="t-0 was read up to offset 100 and now ends at 20"):
        query.trigger()
    assert lenient.trigger()
    logs.ends = {T0: (0, 25)}
    assert lenient.trigger()
    assert lenient.read == ["t-0 [0, 100)", "t-0 [20, 25)"]


def test_an_end_before_the_place_that_spark_did_not_name_is_refused_in_one_line():
    logs = _logs(t0=100)
    query = Query(logs, startingOffsets="earliest", names_the_place=False)
    assert query.trigger()
    query.start()
    logs.ends = {T0: (0, 99)}
    with pytest.raises(ConnectorError, match=r"^\[BAD_CHECKPOINT\] t-0 was read up to [^\n]*$"):
        query.trigger()


@pytest.mark.parametrize("option", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"])
def test_limits_of_a_micro_batch_are_refused_in_one_line(option):
    with pytest.raises(OptionError, match=rf"^\[NEEDS_NEWER_SPARK\] '{option}' [^\n]* 4\.2 "):
        Query(_logs(), **{option: "10"})


def test_a_newer_spark_goes_on_from_the_checkpoint():
    logs = _logs(t0=5)
    query = Query(logs)
    assert query.plan()
    logs.ends = {T0: (0, 9)}
    reader = stream_reader.HeadraceStreamReader(parse_source_options(query.options))
    reader._metadata = logs
    (first,) = (json.loads(each) for each in query.offsets)
    assert reader.partitions(reader.initialOffset(), first) == []
    end = reader.latestOffset(first, ReadAllAvailable())
    assert ranges(reader.partitions(first, end)) == ["t-0 [5, 9)"]
