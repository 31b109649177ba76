"""What one table does next, step by step: the threads' work is done here when the test says so."""

import logging
from dataclasses import dataclass, field

import pytest

from headrace_lake.lake_settings import TableSettings
from headrace_lake.reading.lake_reader import LakeReader, Position
from headrace_lake.reading.rows import TopicRows, rows_of
from headrace_lake.service.memory_budget import OPEN_FILE_BYTES, MemoryBudget
from headrace_lake.service.table_task import (
    STOPPED_RECHECK_MS,
    CommittedBatch,
    OpenedTable,
    Overtaken,
    Stopped,
    TableTask,
)
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.net import deadline
from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.tests.client.support.batches import append_records

T0 = TopicPartition("t", 0)
INTERVAL_MS = 1_000


@dataclass
class Works:
    """Answers as the test has told it."""

    rows: TopicRows
    table: dict[TopicPartition, Position] = field(default_factory=dict)
    values: list[bytes] = field(default_factory=list)
    """What is in the table."""
    open_file: list[bytes] = field(default_factory=list)
    opened: list[object] = field(default_factory=list)
    answers: list[object] = field(default_factory=list)
    """Instead of what would be done, one for each call; None: it is done."""

    def open(self, partitions, seen):
        self.opened.append(seen)
        self.open_file = []
        told = self._told()
        at = {tp: self.table.get(tp, Position(0)) for tp in partitions}
        return told or OpenedTable(rows=self.rows, positions=at)

    def write(self, batches):
        told = self._told()
        self._take(batches)
        return told or sum(map(len, self.open_file))

    def commit(self, batches, positions):
        self._take(batches)
        told = self._told()
        if told is not None:
            return told
        self.values += self.open_file
        count, self.open_file = len(self.open_file), []
        self.table |= positions
        return CommittedBatch(positions=positions, rows=count)

    def tend(self):
        self._told()

    def drop(self):
        self.open_file = []

    def _take(self, batches):
        for each in batches:
            self.open_file += each["value"].to_pylist()

    def _told(self):
        told = self.answers.pop(0) if self.answers else None
        if isinstance(told, Exception):
            raise told
        return told


class Later:
    """Jobs that end when the test says so."""

    def __init__(self):
        self.waiting = []

    def start(self, work, then, failed):
        self.waiting.append((work, then, failed))

    def do(self):
        """The oldest."""
        work, then, failed = self.waiting.pop(0)
        try:
            result = work()
        except (HeadraceError, ValueError) as error:
            failed(error)
        else:
            then(result)


class Table:
    """A task with all that is around it."""

    def __init__(self, fake, cluster):
        self.fake = fake
        self.works = Works(rows_of(cluster, "t"))
        self.jobs, self.reader = Later(), LakeReader(cluster)
        self.told: list[object] = []
        self.budget = MemoryBudget(512 << 20)
        self.now_ms = deadline.monotonic_ms()
        self.task = TableTask(
            TableSettings(topic="t", location="/lake/t", commit_interval_ms=INTERVAL_MS),
            self.works,
            self.reader,
            self.budget,
            self.jobs,
            self.told.append,
        )

    def produce(self, *values):
        append_records(self.fake, [*values])
        self.fake.wake()

    def read(self):
        """Take in what comes."""
        for _ in range(20):
            if found := self.reader.poll(100):
                for each in found:
                    self.task.take(each, self.now_ms)
                return
        raise AssertionError("nothing comes")

    def open(self):
        self.task.own(frozenset({T0}))
        self.step()

    def step(self, after_ms=0):
        """What is due then, done at once."""
        self.begin(after_ms)
        while self.jobs.waiting:
            self.jobs.do()
            self.begin()

    def begin(self, after_ms=0):
        self.now_ms += after_ms
        self.task.step(self.now_ms)


@pytest.fixture
def table(monkeypatch):
    fake = FakeCluster()
    fake.add_topic("t", [1])
    with Cluster(fake.bootstrap_servers, request_timeout_ms=2000, deadline_ms=5000) as cluster:
        made = Table(fake, cluster)
        monkeypatch.setattr("headrace_lake.service.table_task.monotonic_ms", lambda: made.now_ms)
        yield made
        made.reader.close()
    fake.close()


def test_what_was_read_is_committed_after_the_interval_and_the_group_is_told(table):
    table.open()
    table.produce(b"a", b"b")
    table.read()
    table.step(INTERVAL_MS - 1)
    assert table.works.values == []
    table.step(1)
    assert table.works.values == [b"a", b"b"]
    assert table.told == [{T0: Position(2, 0)}]
    assert (table.task.figures.rows, table.task.figures.commits) == (2, 1)
    assert table.budget.taken == 0


def test_reading_goes_on_during_a_commit_and_belongs_to_the_next(table):
    table.open()
    table.produce(b"a")
    table.read()
    table.begin(INTERVAL_MS)
    table.produce(b"b")
    table.read()
    table.jobs.do()
    assert table.works.values == [b"a"]
    table.step(INTERVAL_MS)
    assert table.works.values == [b"a", b"b"]
    assert table.works.table == {T0: Position(2, 0)}


@pytest.mark.parametrize(
    "answer",
    [Overtaken(line="another instance was there"), HeadraceError("no store"), ValueError("a bug")],
    ids=["overtaken", "failed", "a bug"],
)
def test_what_could_not_be_committed_is_read_again_from_what_the_table_says(table, answer):
    table.open()
    table.produce(b"a")
    table.read()
    table.works.answers = [answer]
    table.step(INTERVAL_MS)
    table.step(60_000)
    table.read()
    table.step(INTERVAL_MS)
    assert table.works.values == [b"a"]
    assert table.task.figures.dropped == 0, "the batch was handed over"
    assert table.budget.taken == 0


def test_what_is_read_during_a_commit_that_fails_is_dropped_with_it(table):
    table.open()
    table.produce(b"a")
    table.read()
    table.begin(INTERVAL_MS)
    table.produce(b"b")
    table.read()
    table.works.answers = [HeadraceError("no store")]
    table.jobs.do()
    assert table.task.figures.dropped == 1
    table.step(60_000)
    table.read()
    table.step(INTERVAL_MS)
    assert table.works.values == [b"a", b"b"]


def test_a_store_that_is_away_is_one_line_and_is_tried_less_and_less_often(table, caplog):
    caplog.set_level(logging.INFO)
    table.works.answers = [HeadraceError("no store")] * 4
    table.open()
    tries = []
    for second in range(1, 31):
        before = len(table.works.opened)
        table.step(1_000)
        tries += [second] * (len(table.works.opened) - before)
    assert tries[:4] == [1, 3, 7, 15]
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "topic 't', /lake/t: no store; it is tried again",
        "topic 't' is written again into /lake/t",
    ]
    assert table.task.line == ""


def test_a_stopped_table_is_one_line_and_goes_on_once_the_reason_is_gone(table, caplog):
    table.works.answers = [Stopped(line="rows were removed")] * 2
    table.open()
    table.step(STOPPED_RECHECK_MS)
    assert table.task.is_stopped
    assert table.task.line == "rows were removed"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "topic 't', /lake/t: stopped: rows were removed"
    table.produce(b"a")
    table.step(STOPPED_RECHECK_MS)
    assert not table.task.is_stopped
    table.read()
    table.step(INTERVAL_MS)
    assert table.works.values == [b"a"]


def test_a_partition_that_goes_takes_what_was_read_along(table):
    table.open()
    table.produce(b"a")
    table.read()
    table.task.own(frozenset())
    table.step(INTERVAL_MS)
    assert table.works.values == []
    assert table.reader.is_idle
    assert table.budget.taken == 0


def test_a_commit_that_ends_after_its_partition_went_has_no_say(table):
    table.open()
    table.produce(b"a")
    table.read()
    table.begin(INTERVAL_MS)
    table.task.own(frozenset())
    table.task.own(frozenset({T0}))
    table.jobs.do()
    assert table.told == []
    table.produce(b"b")
    table.step()
    table.read()
    table.step(INTERVAL_MS)
    assert table.works.values == [b"a", b"b"], "the table said where to go on"


def test_many_rows_are_written_before_the_commit(table, monkeypatch):
    monkeypatch.setattr("headrace_lake.service.table_task.GROUP_BYTES", 1_000)
    table.open()
    for value in (b"a" * 100, b"b" * 2_000):
        table.produce(value)
        table.read()
        table.step()
    assert len(table.works.open_file) == 2
    assert table.works.values == []
    assert table.budget.taken == OPEN_FILE_BYTES
    table.step(INTERVAL_MS)
    assert len(table.works.values) == 2
    assert table.budget.taken == 0


def test_a_table_commits_early_where_room_is_needed(table):
    table.open()
    table.produce(b"a")
    table.read()
    table.task.step(table.now_ms, needs_room=True)
    table.jobs.do()
    assert table.works.values == [b"a"]
    assert table.budget.taken == 0


def test_a_file_of_its_size_is_committed_before_the_interval_is_over(table, monkeypatch):
    monkeypatch.setattr("headrace_lake.service.table_task.GROUP_BYTES", 1_000)
    table.works.answers = [None, table.task.settings.file_bytes]
    table.open()
    table.produce(b"a" * 2_000)
    table.read()
    table.step()
    assert len(table.works.values) == 1


def test_a_table_whose_thread_is_at_work_reads_no_more_than_its_share(table):
    table.open()
    table.produce(b"a")
    table.read()
    table.begin(INTERVAL_MS)
    table.budget.table_limit = 3
    for value in (b"b" * 4, b"what was asked for before"):
        table.produce(value)
        table.read()
    table.produce(b"c")
    assert table.reader.poll(300) == []
    table.jobs.do()
    table.step(INTERVAL_MS)
    table.read()
    table.step(INTERVAL_MS)
    assert table.works.values == [b"a", b"b" * 4, b"what was asked for before", b"c"]


def test_at_the_end_what_was_read_is_committed_at_once(table):
    table.open()
    table.produce(b"a")
    table.read()
    assert table.task.finish()
    table.jobs.do()
    assert not table.task.finish()
    assert table.works.values == [b"a"]


def in_single_rows(table, monkeypatch):
    """What comes is made into rows one by one."""
    rows_of_many = TopicRows.batches

    def single(rows, fetched):
        for batch in rows_of_many(rows, fetched):
            yield from (batch.slice(each, 1) for each in range(len(batch)))

    monkeypatch.setattr(TopicRows, "batches", single)


def test_a_few_bytes_with_many_rows_are_written_piece_by_piece_and_committed_whole(
    table, monkeypatch
):
    in_single_rows(table, monkeypatch)
    table.budget.table_limit = 1
    table.open()
    table.produce(b"a", b"b", b"c")
    table.read()
    assert table.budget.taken < 200, "one row"
    written = []
    while not table.works.values:
        table.begin(INTERVAL_MS)
        assert table.budget.taken < 200 + OPEN_FILE_BYTES
        table.jobs.do()
        written.append(len(table.works.open_file))
    assert written == [1, 2, 3, 0]
    assert table.works.values == [b"a", b"b", b"c"]
    assert table.told == [{T0: Position(3, 0)}]
    assert table.budget.taken == 0


def test_what_is_half_made_into_rows_is_read_again_after_an_error(table, monkeypatch):
    in_single_rows(table, monkeypatch)
    table.budget.table_limit = 1
    table.open()
    table.produce(b"a", b"b")
    table.read()
    table.works.answers = [HeadraceError("no store")]
    table.step(INTERVAL_MS)
    table.step(60_000)
    table.read()
    table.step(INTERVAL_MS)
    assert table.works.values == [b"a", b"b"]
    assert table.budget.taken == 0


def test_at_the_end_what_has_come_is_committed_whole(table, monkeypatch):
    in_single_rows(table, monkeypatch)
    table.budget.table_limit = 1
    table.open()
    table.produce(b"a", b"b")
    table.read()
    while table.task.finish():
        while table.jobs.waiting:
            table.jobs.do()
    assert table.works.values == [b"a", b"b"]
