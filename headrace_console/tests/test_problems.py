"""What is wrong, in words: from snapshots that are made here."""

import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from headrace_console.cluster.changes import SINGLE, Changes
from headrace_console.cluster.snapshot import (
    Ends,
    SeenGroup,
    ShownDisk,
    Snapshot,
    TopicFacts,
    WaitingPartition,
)
from headrace_console.console_settings import Thresholds
from headrace_console.paging import Page
from headrace_console.screens.overview import overview, partition_counts
from headrace_console.screens.problems import SeenProblems, find_problems
from headrace_console.screens.topics import partition_list, topic_list
from storage_engine.client.metadata import ClusterMetadata, TopicMetadata
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.metadata import MetadataBroker, MetadataPartition
from storage_engine.tests.machine import slowness

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


def test_what_happened_lately_has_the_broker_that_went_and_not_only_what_it_took_with_it() -> None:
    changes = Changes()
    changes.compare(None, snapshot(topics=30))
    seen = snapshot((1, 2), topics=30, isr=(1, 2), gone={3: NOW_MS})
    changes.compare(snapshot(topics=30), seen)
    told: Any = overview(seen, (), (), changes.events()[::-1])["recent"]
    assert [each["kind"] for each in told] == ["isr"] * 2 + ["broker_gone"]
    assert [each["left_out"] for each in told] == [28, 0, 0]


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
    assert "does not use its log dir /d" in kinds(snapshot(**disks(50, "bad")))["failed_disk"]


def test_a_disk_is_full_where_its_broker_refuses_appends_however_large_it_is() -> None:
    mib = 1 << 20

    def full(free_mib: int) -> str | None:
        disk = ShownDisk(
            path="/data",
            total_bytes=10_000 * mib,
            free_bytes=free_mib * mib,
            log_bytes=1,
            error=None,
            reserve_bytes=2_000 * mib,
        )
        return kinds(snapshot(disks={1: (disk,)})).get("full_disk")

    assert full(2_100) is None
    told = full(2_000)
    assert told is not None and "is full: 2 GiB are free, and log.dir.min.free.bytes" in told


def test_partitions_that_refuse_acks_all_are_told_and_counted() -> None:
    def short(min_isr: int | None) -> Snapshot:
        facts = {"t0": TopicFacts(min_isr, typed=False)}
        return snapshot(isr=(1,), partitions=2, topic_facts=facts)

    assert "refuse acks=all" not in kinds(short(1))["under_replicated"]
    assert "2 of them have fewer than min.insync" in kinds(short(2))["under_replicated"]
    assert [partition_counts(short(each))["under_min_isr"] for each in (1, 2, None)] == [0, 2, None]
    assert partition_counts(snapshot())["under_min_isr"] == 0, "all replicas are in sync"


def test_a_group_that_is_behind_for_long_is_told_and_one_that_nobody_uses_is_not() -> None:
    def told(**more) -> str | None:
        seen = SeenGroup(
            **{
                "group": "billing",
                "state": "Stable",
                "coordinator": 1,
                "topics": frozenset({"t0"}),
                "lag": 12,
                "lag_ms": 90_000,
                "sure_lag_ms": 90_000,
                "worst": TopicPartition("t0", 0),
                "had_members": True,
                **more,
            }
        )
        return kinds(snapshot(groups={"billing": seen})).get("lagging_group")

    words = told()
    assert words is not None and words.startswith("Group 'billing' is 12 records behind")
    assert "waited for 90 s, the oldest of them in t0-0" in words
    assert told(state="Empty") is not None
    assert told(state="Empty", had_members=False) is None
    assert told(sure_lag_ms=59_000) is None


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
    before_s = time.thread_time()
    rows: Any = topic_list(many, Page(sort="-records", filter="T1"), internal=False)
    assert (rows["total"], len(rows["rows"]), rows["rows"][0]["records"]) == (111, 50, 100)
    assert partition_list(many, "t7", Page())["total"] == 10
    problems = list(find_problems(many, [], Thresholds(), now_ms=NOW_MS))
    counts: Any = overview(many, [], problems, [])["partitions"]
    assert counts["total"] == 5_000
    assert time.thread_time() - before_s < 0.5 * slowness()
