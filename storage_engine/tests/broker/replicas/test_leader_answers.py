"""A leader that sends what none may send: the follower's log stays as it is, and the loop goes on
(R-REP2)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.log.log_config import LogConfig
from storage_engine.protocol.apis.fetch import FetchPartitionResponse, FetchResponse
from storage_engine.protocol.records.record_batch import patch
from storage_engine.tests.broker.replicas.lone_partition import (
    BACKOFF_MS,
    fetchers_of,
    follower_of,
    partition_ports,
)
from storage_engine.tests.log.support import TP, open_log
from storage_engine.tests.protocol.hostile_batches import GOOD, INT64_MAX, batch

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
        self.failures: list[Any] = []
        ports = partition_ports(
            self.loop, on_failure=lambda *failure: self.failures.append(failure)
        )
        self.partition = follower_of(self.log, ports)
        self._fetchers = fetchers_of(self.loop, self.leader, self.partition)
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
