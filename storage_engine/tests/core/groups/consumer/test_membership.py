"""Sessions and their settings, and what is written when members go."""

from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer.events import GroupSettingsChanged
from storage_engine.core.groups.consumer.membership import GroupTimes
from storage_engine.core.groups.consumer.records import (
    PartitionMetadataKey,
    PartitionMetadataRecord,
)
from storage_engine.core.groups.settings import ConsumerSettings
from storage_engine.tests.core.groups.consumer.consumer_bench import (
    INTERVAL_MS,
    ConsumerBench,
    numbers,
    shapes,
)
from storage_engine.tests.core.groups.group_bench import G


def change(**settings: int) -> GroupSettingsChanged:
    return GroupSettingsChanged(group_id=G, **settings)


def test_settings_of_a_group_are_kept_within_those_of_the_broker():
    settings = ConsumerSettings()
    times = GroupTimes(settings)
    assert times.session_timeout_ms(G) == settings.session_timeout_ms
    for session_ms, interval_ms in ((1, 1), (10**9, 10**9)):
        times.change(change(session_timeout_ms=session_ms, heartbeat_interval_ms=interval_ms))
        lowest, highest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        assert times.session_timeout_ms(G) == (lowest if session_ms == 1 else highest)
        lowest = settings.min_heartbeat_interval_ms
        highest = settings.max_heartbeat_interval_ms
        assert times.heartbeat_interval_ms(G) == (lowest if interval_ms == 1 else highest)
    assert times.session_timeout_ms("other") == settings.session_timeout_ms
    times.change(change())
    assert times.heartbeat_interval_ms(G) == settings.heartbeat_interval_ms


def test_a_changed_interval_is_in_the_next_answer():
    bench = ConsumerBench()
    bench.members("a")
    bench.step(change(heartbeat_interval_ms=10_000))
    assert bench.beat("a", 1).interval_ms == 10_000


def test_a_shorter_session_counts_from_the_next_heartbeat_on():
    bench = ConsumerBench(consumer=ConsumerSettings(min_session_timeout_ms=6_000))
    bench.members("a")
    bench.step(change(session_timeout_ms=6_000))
    bench.advance(INTERVAL_MS)
    assert bench.beat("a", 1).error is ErrorCode.NONE
    bench.advance(6_000)
    assert bench.state() == "Empty"


def test_a_longer_session_counts_from_the_next_heartbeat_on():
    bench = ConsumerBench()
    bench.members("a")
    bench.step(change(session_timeout_ms=60_000))
    bench.advance(INTERVAL_MS)
    bench.beat("a", 1)
    bench.advance(59_999)
    assert bench.state() == "Stable"


def test_many_members_whose_sessions_end_at_once_are_one_rebalance():
    bench = ConsumerBench({"t": 1})
    for number in range(20):
        bench.enter_group(f"m{number}")
    epoch = bench.consumer_group().epoch
    bench.advance(10 * INTERVAL_MS)
    assert bench.state() == "Empty"
    assert bench.consumer_group().epoch == epoch + 1


def test_a_failover_between_the_ends_of_many_sessions_loses_no_rebalance():
    bench = ConsumerBench({"t": 2})
    names = [f"m{number}" for number in range(4)]
    bench.members(*names)
    replicated = len(bench.log)
    bench.advance(10 * INTERVAL_MS)
    for kept in range(replicated, len(bench.log)):
        again = ConsumerBench({"t": 2})
        again.log, again.replicated = bench.log[:kept], kept
        again.now_ms = bench.now_ms
        again.fail_over()
        group = again.consumer_group()
        shared_out = sorted(n for each in group.members for n in numbers(group.target(each)))
        assert shared_out == [0, 1] or not group.members


def test_what_a_former_version_kept_of_topics_ends_with_the_next_epoch():
    bench = ConsumerBench()
    bench.members("a")
    bench.log.append((PartitionMetadataKey(G), PartitionMetadataRecord(), None))
    bench.replicated = len(bench.log)
    bench.fail_over()
    assert bench.consumer_group().content.has_partition_metadata
    bench.tell_topics(shapes(t=5))
    bench.replicate()
    bench.fail_over()
    assert not bench.consumer_group().content.has_partition_metadata
