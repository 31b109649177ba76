"""A leader that sends what none may send: the follower's log stays as it is, and the loop goes on
(R-REP2)."""

from typing import Any
from uuid import UUID

import pytest

from storage_engine.broker.replicas.fetcher import FetcherPorts, FetcherSettings
from storage_engine.broker.replicas.fetcher_manager import FetcherManager
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.broker.replicas.replication_throttle import ReplicationThrottle
from storage_engine.broker.settings.topic_config import TopicConfig
from storage_engine.core.ports import Endpoint
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchResponse
from storage_engine.protocol.records.record_batch import patch
from storage_engine.simulation.clock import SimulatedLoop
from storage_engine.tests.broker.lone_partition import partition_ports
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

    def answer(self, records: bytes) -> int:
        """The offset that was fetched."""
        request, on_reply = self.asked.pop()
        data = memoryview(bytearray(records))
        answer = FetchPartitionResponse(
            TP.topic, TP.partition, high_watermark=0, log_start_offset=0, records=data
        )
        on_reply(FetchResponse(partitions=[answer]))
        return int(request.partitions[0].fetch_offset)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_are_not_appended_and_are_fetched_again(tmp_path, name):
    loop, leader = SimulatedLoop(), Leader()
    log = open_log(tmp_path, LogConfig())
    config = TopicConfig(
        log=LogConfig(), min_insync_replicas=1, unclean_leader_election_enable=False
    )
    failures: list[Any] = []
    partition = HostedPartition(
        TP,
        log=log,
        topic_id=UUID(int=1),
        config=config,
        high_watermark=0,
        ports=partition_ports(loop, on_failure=lambda *failure: failures.append(failure)),
    )
    partition.become_follower(1)
    fetchers = FetcherManager(
        SETTINGS,
        FetcherPorts(
            transport=leader, scheduler=loop, clock=loop, broker_epoch=lambda: 1,
            keep_log_starts=lambda _: True,
            throttle=ReplicationThrottle(
                2, clock=loop, leader_rate=lambda: 1, follower_rate=lambda: 1
            ),
        ),
    )  # fmt: skip
    fetchers.add(partition, Endpoint(broker_id=1, host="leader", port=9))
    fetchers.wake()
    loop.run_for(1)
    assert leader.answer(HOSTILE[name]) == 0
    assert log.log_end_offset == 0
    loop.run_for(BACKOFF_MS + 1)
    good = bytearray(GOOD)
    patch(good, 0, base_offset=0, leader_epoch=0)
    assert leader.answer(bytes(good)) == 0
    assert log.log_end_offset == 3
    assert failures == []
    fetchers.close()
    log.close_without_flush()
