"""The figures of groups in a scrape."""

from types import SimpleNamespace

from storage_engine.broker.metrics.coordinator_figures import (
    GROUPS_MAX,
    GROUPS_PER_STEP,
    GroupFigures,
)
from storage_engine.broker.metrics.exposition import Samples
from storage_engine.broker.metrics.scrapes import Scrapes
from storage_engine.core.groups.classic.group import ClassicGroup
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.tests.broker.groups.consumer_member import ConsumerMember, settle
from storage_engine.tests.broker.groups.test_consumer_groups import GroupClient
from storage_engine.tests.broker.metrics.scraped import sources


def test_groups_beyond_a_number_are_counted_only_and_many_do_not_hold_the_loop():
    coordinator = GroupCoordinator()
    count = GROUPS_MAX + 5_000
    coordinator.groups = {str(each): ClassicGroup(group_id=str(each)) for each in range(count)}
    ends = SimpleNamespace(ask=lambda: None)
    clock = SimpleNamespace(wall_ms=lambda: 0)
    samples = Samples()
    figures = GroupFigures([coordinator], SimpleNamespace(), ends, clock)
    steps = sum(1 for _ in figures.read(samples))
    assert steps >= count // GROUPS_PER_STEP
    text = "".join(samples.text(open_metrics=False))
    assert text.count("kafka_consumergroup_members{") == GROUPS_MAX
    assert f"numgroups {count}\n" in text


def test_groups_of_both_protocols_are_counted_by_their_states(topic):
    member = ConsumerMember(topic, "m", ["t"], group="consumers")
    settle(member)
    GroupClient(topic, "classic").enter()
    text = "".join(
        text
        for broker in topic.brokers
        for text in Scrapes(sources(topic, broker.id)).text("text/plain")
    )
    name = "kafka_server_group_coordinator_metrics_"
    counted: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith(name):
            key, _, value = line.removeprefix(name).partition(" ")
            counted[key] = counted.get(key, 0) + float(value)
    assert counted['group_count{protocol="consumer"}'] == 1
    assert counted['group_count{protocol="classic"}'] == 1
    assert counted['consumer_group_count{state="stable"}'] == 1
    assert counted['consumer_group_count{state="empty"}'] == 0
    assert counted["consumer_group_rebalance_count_total"] == 1
