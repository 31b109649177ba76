"""What is wrong, in words: from snapshots that are made here."""

import time
from collections.abc import Sequence
from uuid import UUID

from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.console.cluster.changes import SINGLE, Changes
from storage_engine.console.cluster.snapshot import Ends, ShownDisk, Snapshot, WaitingPartition
from storage_engine.console.console_settings import Thresholds
from storage_engine.console.paging import Page
from storage_engine.console.screens.overview import overview
from storage_engine.console.screens.problems import SeenProblems, find_problems
from storage_engine.console.screens.topics import partition_list, topic_list
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.metadata import MetadataBroker, MetadataPartition

NOW_MS = 1_000_000_000_000
DAY_MS = 86_400_000


def snapshot(
    brokers: Sequence[int] = (1, 2, 3),
    *,
    leader: int = 1,
    isr: Sequence[int] = (1, 2, 3),
    topics: int = 1,
    partitions: int = 1,
    controller: int = 1,
    **more,
) -> Snapshot:
    metadata = ClusterMetadata(
        brokers={
            each: MetadataBroker(broker_id=each, host="host", port=9000 + each) for each in brokers
        },
        topics={
            f"t{number}": TopicMetadata(
                topic=f"t{number}",
                topic_id=UUID(int=number + 1),
                is_internal=False,
                partitions={
                    place: MetadataPartition(
                        partition=place, leader=leader, replicas=(1, 2, 3), isr=isr, leader_epoch=4
                    )
                    for place in range(partitions)
                },
            )
            for number in range(topics)
        },
        controller_id=controller,
    )
    return Snapshot(at_ms=NOW_MS, metadata=metadata, **more)


def kinds(seen: Snapshot, **thresholds) -> dict[str, str]:
    found = find_problems(seen, [], Thresholds(**thresholds), now_ms=NOW_MS)
    return {each.kind: each.what for each in found}


def test_nothing_is_wrong_where_nothing_is_wrong() -> None:
    assert kinds(snapshot()) == {}


def test_missing_brokers_replicas_leaders_and_controllers_are_told() -> None:
    gone = kinds(snapshot((1, 2), isr=(1, 2), gone={3: NOW_MS}))
    assert gone["broker_offline"].startswith("Broker 3 is not in the cluster; the console saw it")
    assert "missing: broker 3" in gone["under_replicated"]
    lost = kinds(snapshot((1, 2), leader=-1, isr=(3,), controller=-1))
    assert "Partition t0-0 has no leader" in lost["without_leader"]
    assert "t0-0 waits for broker 3" in lost["without_leader"]
    assert "no controller" in lost["no_controller"]


def test_disks_are_told_when_they_are_full_or_failed() -> None:
    def disks(free: int, error: str | None = None) -> dict:
        disk = ShownDisk(path="/d", total_bytes=100, free_bytes=free, log_bytes=1, error=error)
        return {"disks": {2: (disk,)}}

    assert kinds(snapshot(**disks(11))) == {}
    assert "is 90 % full: 10 B are free" in kinds(snapshot(**disks(10)))["full_disk"]
    assert "does not use its log directory /d" in kinds(snapshot(**disks(50, "bad")))["failed_disk"]


def test_certificates_are_told_before_they_end() -> None:
    assert kinds(snapshot(certificates={1: NOW_MS + 31 * DAY_MS})) == {}
    soon = kinds(snapshot(certificates={1: NOW_MS + 29 * DAY_MS}))
    assert "expires in 29 days" in soon["certificate"]
    over = kinds(snapshot(certificates={1: NOW_MS - 1}))
    assert "has expired" in over["certificate"]


def test_one_transaction_is_one_problem_with_all_its_partitions() -> None:
    rows = [
        WaitingPartition(
            tp=TopicPartition("t0", number),
            stable_offset=5,
            end_offset=8,
            producer_id=7,
            transactional_id="copier",
            timeout_ms=60_000,
            since_ms=NOW_MS - 61_000,
        )
        for number in range(3)
    ]
    found = list(
        find_problems(snapshot(open_transactions=tuple(rows)), [], Thresholds(), now_ms=NOW_MS)
    )
    assert [each.count for each in found] == [3]
    assert "The transaction of 'copier' has been open for 61 s" in found[0].what
    assert "with 9 records behind it" in found[0].what
    assert kinds(snapshot(open_transactions=tuple(rows)), stuck_after_ms=62_000) == {}


def test_a_problem_keeps_the_time_since_when_it_is_there() -> None:
    seen = SeenProblems()

    def dated(state: Snapshot, at_ms: int) -> list:
        found = find_problems(state, [], Thresholds(), now_ms=at_ms)
        return [(each.kind, each.since_ms) for each in seen.dated(found, at_ms)]

    short = snapshot(isr=(1, 2))
    assert dated(short, 100) == [("under_replicated", 100)]
    both = snapshot((1, 2), isr=(1, 2), gone={3: 0})
    assert dated(both, 200) == [("broker_offline", 200), ("under_replicated", 100)]
    assert dated(snapshot(), 300) == []
    assert dated(short, 400) == [("under_replicated", 400)]


def test_a_failover_of_many_partitions_is_few_events() -> None:
    changes = Changes()
    changes.compare(None, snapshot(partitions=SINGLE))
    changes.compare(snapshot(partitions=SINGLE), snapshot(partitions=SINGLE, leader=2))
    assert len(changes.events()) == SINGLE
    assert changes.events()[0].words == "broker 2 leads t0-0, before it was broker 1"
    changes.compare(
        snapshot(partitions=SINGLE + 1), snapshot((2, 3), partitions=SINGLE + 1, leader=2)
    )
    *_, gone, many = changes.events()
    assert gone.words == "broker 1 left the cluster"
    assert many.words == f"partitions of 't0': {SINGLE + 1} have other leaders"


def test_lists_of_five_thousand_partitions_take_a_moment() -> None:
    many = snapshot(topics=500, partitions=10)
    ends = {tp: Ends(0, 10, 10) for tp, _ in many.partitions()}
    many = snapshot(topics=500, partitions=10, ends=ends, sizes=dict.fromkeys(ends, 1))
    before_s = time.process_time()
    rows = topic_list(many, Page(sort="-records", filter="T1"), internal=False)
    assert (rows["total"], len(rows["rows"]), rows["rows"][0]["records"]) == (111, 50, 100)
    assert partition_list(many, "t7", Page())["total"] == 10
    problems = list(find_problems(many, [], Thresholds(), now_ms=NOW_MS))
    assert overview(many, [], problems, [])["partitions"]["total"] == 5_000
    assert time.process_time() - before_s < 0.5
