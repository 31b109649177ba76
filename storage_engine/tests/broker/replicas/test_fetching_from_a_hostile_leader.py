"""A leader that sends what none may send: the follower's log stays as it is, and the loop goes on
(R-REP2)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.cluster.leader_doubts import LeaderDoubts
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.replicas.fetcher import FetcherPorts, FetcherSettings
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.followed_partition import ReplicationThrottle
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.settings.topic_config import TopicConfig
from storage_engine.core.ports import Endpoint
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchResponse
from storage_engine.protocol.records.record_batch import patch
from storage_engine.tests.broker.replicas.lone_partition import partition_ports
from storage_engine.tests.log.support import TP, open_log
from storage_engine.tests.protocol.hostile_batches import GOOD, INT64_MAX, batch

BACKOFF_MS = 1000
SETTINGS = FetcherSettings(
    broker_id=2, max_bytes=1 << 20, response_max_bytes=1 << 20, min_bytes=1, wait_max_ms=500,
    backoff_ms=BACKOFF_MS,
)  # fmt: skip
HOSTILE = {
    "a wrong CRC": batch(crc_xor=1),
    "an old magic": batch(magic=1),
    "no length": batch(length=0),
    "a negative length": batch(length=-1),
    "no records": batch(last_offset_delta=-1),
    "the last offset": batch(base_offset=INT64_MAX - 1),
}


class Leader:
    """A Transport that answers every fetch with what it is given."""

    def __init__(self) -> None:
        self.records = b""
        self.asked: list[Any] = []

    def request(self, *request: Any, on_reply: Any, **_options: Any) -> None:
        self.asked.append((request[4], on_reply))

    def disconnect(self, *_: Any) -> None:
        """Nothing is open."""

    def answer(self, records: bytes, **what: Any) -> int:
        """The offset that was fetched."""
        request, on_reply = self.asked.pop()
        data = memoryview(bytearray(records))
        given = {"high_watermark": 0, "log_start_offset": 0, "records": data} | what
        on_reply(FetchResponse(partitions=[FetchPartitionResponse(*TP, **given)]))
        return int(request.partitions[0].fetch_offset)


class Follower:
    """One replica, its leader, and the failures that it reports."""

    def __init__(self, folder: Path) -> None:
        self.loop, self.leader = SimulatedLoop(), Leader()
        self.log = open_log(folder, LogConfig())
        config = TopicConfig(
            log=LogConfig(), min_insync_replicas=1, unclean_leader_election_enable=False
        )
        self.failures: list[Any] = []
        self.partition = HostedPartition(
            TP,
            log=self.log,
            topic_id=UUID(int=1),
            config=config,
            high_watermark=0,
            ports=partition_ports(
                self.loop, on_failure=lambda *failure: self.failures.append(failure)
            ),
        )
        self.partition.become_follower(1)
        self._fetchers = FetcherManager(
            SETTINGS,
            FetcherPorts(
                transport=self.leader, scheduler=self.loop, clock=self.loop,
                broker_epoch=lambda: 1, keep_log_starts=lambda _: True,
                throttle=ReplicationThrottle(
                    2, clock=self.loop, leader_rate=lambda: 1, follower_rate=lambda: 1
                ),
                doubts=LeaderDoubts(MetadataCache(), self.loop),
            ),
        )  # fmt: skip
        self._fetchers.add(self.partition, Endpoint(broker_id=1, host="leader", port=9))
        self._fetchers.wake()
        self.loop.run_for(1)

    def close(self) -> None:
        self._fetchers.close()
        self.log.close_without_flush()


@pytest.fixture
def follower(tmp_path) -> Iterator[Follower]:
    made = Follower(tmp_path)
    yield made
    made.close()


def good_batch() -> bytes:
    """Three records at offset 0."""
    good = bytearray(GOOD)
    patch(good, 0, base_offset=0, leader_epoch=0)
    return bytes(good)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_are_not_appended_and_are_fetched_again(follower, name):
    assert follower.leader.answer(HOSTILE[name]) == 0
    assert follower.log.log_end_offset == 0
    follower.loop.run_for(BACKOFF_MS + 1)
    assert follower.leader.answer(good_batch()) == 0
    assert follower.log.log_end_offset == 3
    assert follower.failures == []


def test_a_high_watermark_ends_where_a_cut_within_a_batch_does(follower):
    """An unclean leader's log may end where this one has the middle of a batch: after a loss of
    the power, or a pass of compaction. Found by seed 950663 of the simulation."""
    follower.leader.answer(good_batch(), high_watermark=3)
    assert follower.partition.high_watermark == 3
    follower.loop.run_for(1)
    assert follower.leader.answer(b"", diverging_epoch=(0, 2), high_watermark=2) == 3
    assert follower.log.log_end_offset == 0
    assert follower.partition.high_watermark == 0
    assert follower.failures == []
