"""A leader refuses a fetch where its log is not the one that was read before: what is in no commit
is dropped, and a table that has too much stops. The table, the reader and their order are real."""

import logging

import pytest
from deltalake import DeltaTable

from headrace_lake.lake_settings import TableSettings
from headrace_lake.reading.lake_reader import LakeReader
from headrace_lake.service.brokers import Brokers
from headrace_lake.service.jobs import Jobs
from headrace_lake.service.memory_budget import MemoryBudget
from headrace_lake.service.table_task import TableTask
from headrace_lake.service.table_writer import TableWriter
from storage_engine.client.cluster import Cluster
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis import describe_schemas
from storage_engine.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.tests.client.support.batches import append_records

T0 = TopicPartition("t", 0)
TRIES = 100
_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


class Lake:
    """One table; time passes when the test says so."""

    def __init__(self, fake, cluster, asking, place):
        self.fake = fake
        self.place = place
        self.jobs = Jobs()
        self.reader = LakeReader(cluster)
        settings = TableSettings(topic="t", location=str(place), commit_interval_ms=1_000)
        writer = TableWriter(settings, {}, Brokers(asking))
        self.task = TableTask(
            settings, writer, self.reader, MemoryBudget(512 << 20), self.jobs, lambda _: None
        )
        self.now_ms = 0

    def produce(self, *values):
        append_records(self.fake, list(values))
        self.fake.wake()

    def elect_uncleanly(self, lost, *values):
        """A replica leads that never had the last so many batches, and these instead."""
        log = self.fake.partition("t")
        log.lose_from(len(log.batches) - lost)
        self.fake.move_leader("t", 0, log.leader % 3 + 1)
        self.produce(*values)

    def until(self, condition, *, after_ms=0):
        """As an instance of the lake goes on."""
        self.now_ms += after_ms
        for _ in range(TRIES):
            if condition():
                return
            self.task.step(self.now_ms)
            self.jobs.finish(100)
            for fetched in self.reader.poll(50):
                self.task.take(fetched, self.now_ms)
            for tp, error in self.reader.failures().items():
                self.task.failed(tp, error)
        raise AssertionError(f"it does not come to that: {self.task.line}")

    def hold(self, *values):
        """Read what is produced now, and commit nothing."""
        self.produce(*values)
        end = self.fake.partition("t").end_offset
        self.until(lambda: self.held_to() == end)

    def held_to(self):
        return self.task.figures.ends.get(T0)

    def commit(self):
        commits = self.task.figures.commits
        self.until(lambda: self.task.figures.commits > commits, after_ms=1_000)

    @property
    def values(self):
        rows = DeltaTable(str(self.place)).to_pyarrow_table().sort_by("_offset")
        return rows["value"].to_pylist()


@pytest.fixture
def lake(tmp_path, monkeypatch):
    fake = FakeCluster()
    del fake.api_versions[describe_schemas.API.key]
    fake.add_topic("t", [1])

    def epoch_ends(broker_id, api, message):
        assert api == "OffsetForLeaderEpoch"
        (topic,) = message.topics
        (asked,) = topic.partitions
        log = fake.partition(topic.topic, asked.partition)
        epoch, end = log.epochs.end_offset_for(asked.leader_epoch, log.end_offset)
        row = _Topic.EpochEndOffset(
            partition=asked.partition, leader_epoch=epoch, end_offset=end, error_code=0
        )
        return OffsetForLeaderEpochResponse(topics=[_Topic(topic="t", partitions=[row])])

    fake.admin = epoch_ends
    how = {"request_timeout_ms": 2000, "deadline_ms": 5000}
    with (
        Cluster(fake.bootstrap_servers, **how) as cluster,
        Cluster(fake.bootstrap_servers, **how) as asking,
    ):
        made = Lake(fake, cluster, asking, tmp_path / "t")
        monkeypatch.setattr("headrace_lake.service.table_task.monotonic_ms", lambda: made.now_ms)
        made.task.own(frozenset({T0}))
        yield made
        made.reader.close()
        made.jobs.close()
    fake.close()


def test_what_was_read_and_is_lost_is_dropped_while_it_is_in_no_commit(lake):
    lake.hold(b"a")
    lake.commit()
    lake.hold(b"lost")
    lake.elect_uncleanly(1, b"b", b"c")
    lake.until(lambda: lake.task.figures.dropped == 1)
    lake.until(lambda: lake.held_to() == 3, after_ms=1_000)
    lake.commit()
    assert lake.values == [b"a", b"b", b"c"]
    assert not lake.task.is_stopped


def test_what_is_in_the_table_and_is_lost_stops_the_table(lake, caplog):
    caplog.set_level(logging.INFO)
    lake.hold(b"a")
    lake.hold(b"lost")
    lake.commit()
    lake.elect_uncleanly(1, b"b", b"c")
    lake.until(lambda: lake.task.line)
    lake.until(lambda: lake.task.is_stopped, after_ms=1_000)
    assert "lost some of them (offset 1 on) and gave their offsets to others" in lake.task.line
    stops = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.getMessage() for each in stops] == [
        f"topic 't', {lake.place}: stopped: {lake.task.line}"
    ]
    lake.until(lambda: lake.task.is_stopped and not lake.task.is_busy, after_ms=60_000)
    assert lake.values == [b"a", b"lost"]


def test_an_election_between_the_opening_of_the_table_and_the_first_fetch_is_noticed(lake):
    lake.hold(b"a")
    lake.hold(b"lost")
    lake.commit()
    lake.task.own(frozenset())
    elections = [(1, b"b", b"c")]

    def elect_first(asked):
        if asked.api == "Fetch" and elections:
            lake.elect_uncleanly(*elections.pop())

    lake.fake.fault = elect_first
    lake.task.own(frozenset({T0}))
    lake.until(lambda: lake.task.line)
    assert not elections
    lake.until(lambda: lake.task.is_stopped, after_ms=1_000)
    assert lake.values == [b"a", b"lost"]
