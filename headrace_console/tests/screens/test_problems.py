"""What is wrong, in words: from snapshots that are made here."""

from headrace_console.cluster.snapshot import (
    SeenGroup,
    ShownDisk,
    Snapshot,
    TopicFacts,
    WaitingPartition,
)
from headrace_console.console_settings import Thresholds
from headrace_console.screens.overview import partition_counts
from headrace_console.screens.problems import SeenProblems, find_problems
from headrace_console.tests.made_snapshots import NOW_MS, snapshot
from storage_engine.core.ids import TopicPartition

DAY_MS = 86_400_000


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
