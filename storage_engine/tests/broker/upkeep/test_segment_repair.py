"""A repair meets trouble: a folder that can't be tidied, odd answers, a log that is shortened
meanwhile, a full disk (R-LOG8)."""

import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from storage_engine.broker.upkeep.scrubs import RETRY_MS
from storage_engine.broker.upkeep.segment_repair import RepairFetch
from storage_engine.core.errors import ErrorCode, LogFullError
from storage_engine.core.ports import Endpoint
from storage_engine.log.cleaning.segment_scrub import REPAIR_SUFFIX, Replacements
from storage_engine.log.files.disk import RealDisk
from storage_engine.log.segments.swap_files import SWAP_SUFFIX
from storage_engine.log.upkeep import Repair
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.tests.broker.handlers.test_delete_records import delete
from storage_engine.tests.broker.upkeep.test_scrubs import (
    TP,
    cluster,
    contents,
    log_of,
    make,
    roles,
    rot,
    segments,
)

__all__ = ["cluster", "make"]

STRANGER = 77


class StickyDisk(RealDisk):
    """Removes no file of a repair once it is told so."""

    def __init__(self) -> None:
        self.sticks = False

    def remove(self, path: Path) -> None:
        if self.sticks and path.name.endswith(REPAIR_SUFFIX) and path.exists():
            raise OSError(errno.EPERM, "Operation not permitted")
        super().remove(path)


def test_a_repair_whose_leftovers_stay_does_not_end_the_search_for_damage(make):
    disks: list[StickyDisk] = []

    def disk(_broker: int) -> StickyDisk:
        disks.append(StickyDisk())
        return disks[-1]

    cluster = make(disk=disk)
    _, follower = roles(cluster)
    good = contents(cluster, follower)
    for number in (1, 3):
        rot(segments(cluster, follower)[number])
    cluster.loop.run_until(lambda: bool(log_of(cluster, follower).damaged))
    disks[follower - 1].sticks = True
    cluster.loop.run_until(lambda: contents(cluster, follower) == good)


class Replica:
    """A Transport whose replica answers every fetch in one way."""

    def __init__(self, answers: list[FetchResponse]) -> None:
        self.answers = answers

    def request(self, *_request: Any, on_reply: Any, **_options: Any) -> None:
        on_reply(self.answers.pop(0))

    def disconnect(self, *_: Any) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("others", [[], [("another", 0)], [("t", 1)]], ids=str)
def test_a_replica_that_answers_for_other_partitions_gives_nothing(make, others):
    cluster = make(1)
    good = memoryview(segments(cluster, 1)[1].read_bytes())
    partitions = [FetchPartitionResponse(*other, records=good) for other in others]
    rot(segments(cluster, 1)[1])
    partition = cluster[1].replicas.get(TP)
    scrub = partition.log.repair.next_scrub(int(segments(cluster, 1)[1].stem))
    while not scrub.is_done:
        scrub.step()
    ends: list[str] = []
    RepairFetch(
        partition,
        scrub,
        Replacements(partition.log.disk, scrub),
        [Endpoint(broker_id=9, host="replica", port=9)],
        transport=Replica([FetchResponse(partitions=partitions)]),
        on_done=lambda: ends.append("done"),
        on_failed=ends.append,
    ).start()
    assert len(ends) == 1 and ends[0].startswith("broker 9: ")


def test_who_is_no_replica_of_a_partition_moves_nothing_of_it(make):
    cluster = make(topic={"segment_bytes": "1000000"}, log_scrub_interval_ms="0")
    leader, _ = roles(cluster)
    partition = cluster[leader].replicas.get(TP)
    assert partition.log.segment_count == 1
    wanted = FetchPartition("t", 0, 5, 1 << 20, log_start_offset=0, was_damaged=True)
    request = FetchRequest(0, 0, 1 << 20, [wanted], replica_id=STRANGER)
    cluster.answer(cluster.ask(leader, FETCH, 12, request))
    assert partition.log.segment_count == 1
    assert STRANGER not in partition.follower_log_starts


def test_retention_during_the_swap_of_a_repair_leaves_nothing_refused(cluster):
    """The swap is brought to its end at once, and counts as the repair that it is."""
    _, follower = roles(cluster)
    path = segments(cluster, follower)[3]
    rot(path)
    log = log_of(cluster, follower)
    cluster.loop.run_until(lambda: bool(list(log.directory.glob("*" + SWAP_SUFFIX))))
    assert log.damaged
    log.retention.advance_log_start(int(segments(cluster, follower)[1].stem))
    cluster.loop.run_for(500)
    assert log.damaged == ()
    assert log.reads.read(int(path.stem), max_bytes=1) is not None


def test_damage_below_the_log_start_leaves_no_hole(cluster, caplog):
    """Nobody has these records any more; what stands for them is whole, and found sound later."""
    _, follower = roles(cluster)
    path = segments(cluster, follower)[2]
    first, end = int(path.stem), int(segments(cluster, follower)[3].stem)
    start = end - 2
    assert start - first > 2
    assert delete(cluster, start) == (ErrorCode.NONE, start)
    good = contents(cluster, follower)
    # All but the last batch, so that there is a hole before it.
    data = path.read_bytes()
    size = len(data) // (end - first)
    for number in range(end - first - 1):
        rot(path, number * size + 100)
    with caplog.at_level(logging.INFO):
        cluster.loop.run_for(90_000)
    assert len([m for m in caplog.messages if m.startswith("damaged partition=t-0")]) == 1
    assert contents(cluster, follower).endswith(good[-len(good) // 2 :])
    # Also for a start that goes through all of it.
    end_offset = log_of(cluster, follower).log_end_offset
    cluster[follower].kill()
    (path.parent.parent / "recovery-point-offset-checkpoint").unlink()
    caplog.clear()
    with caplog.at_level(logging.INFO):
        cluster[follower].start()
    log = log_of(cluster, follower)
    assert (log.log_start_offset, log.log_end_offset) == (start, end_offset)
    assert not [m for m in caplog.messages if "cut" in m]


def test_a_repair_that_can_not_note_what_it_needs_is_tried_again(cluster, monkeypatch):
    """The disk is full: neither is the replica offline, nor is the repair under way for ever."""
    _, follower = roles(cluster)
    good = contents(cluster, follower)
    begin_repair = Repair.begin
    refused: list[Repair] = []

    def refuse_once(repair: Repair, *what: Any) -> Any:
        if not refused:
            refused.append(repair)
            raise LogFullError("no room")
        return begin_repair(repair, *what)

    monkeypatch.setattr(Repair, "begin", refuse_once)
    rot(segments(cluster, follower)[1])
    cluster.loop.run_until(lambda: bool(refused), limit_ms=200_000)
    cluster.loop.run_until(lambda: contents(cluster, follower) == good, limit_ms=2 * RETRY_MS)
