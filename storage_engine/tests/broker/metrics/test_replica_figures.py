"""The figures of replicas and groups in a scrape."""

from types import SimpleNamespace

import pytest

from storage_engine.broker.metrics.exposition import Samples
from storage_engine.broker.metrics.replica_figures import GROUPS_MAX, GROUPS_PER_STEP, GroupFigures
from storage_engine.broker.metrics.scrapes import Scrapes
from storage_engine.core.groups.classic.group import ClassicGroup
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.groups.consumer_member import ConsumerMember, settle
from storage_engine.tests.broker.groups.test_consumer_groups import GroupClient
from storage_engine.tests.broker.metrics.scraped import sources, values

TP = TopicPartition("t", 0)


def test_the_counts_of_a_topic_end_with_it_and_the_sums_do_not_fall(topic):
    leader = topic.state(TP).leader
    scrapes = Scrapes(sources(topic, leader))
    before = values("".join(scrapes.text("text/plain")))
    assert before["kafka_server_brokertopicmetrics_messagesin_total"] == 1
    assert before["kafka_server_brokertopicmetrics_replicationbytesout_total"] > 0
    topic.answer(topic.delete_topic("t"))
    topic.loop.run_until(lambda: TP not in topic[leader].logs.logs)
    kept = topic[leader].parts.replicas.manager.figures
    assert not kept.by_name, "nothing is kept of it, whether anybody scrapes or not"
    assert not kept._replicas
    after = values("".join(scrapes.text("text/plain")))
    assert "kafka_server_brokertopicmetrics_messagesin_total" not in after
    for name in (
        "headrace_bytes_in_total",
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
    ):
        assert after[name] == before[name]


@pytest.mark.parametrize("killed", [2, 3])
def test_what_is_out_of_sync_is_told_by_the_leader(topic, killed):
    leader = topic.state(TP).leader
    killed = killed if killed != leader else 1
    topic[killed].kill()
    topic.loop.run_until(lambda: len(topic.state(TP).isr) == 2)
    topic.loop.run_for(2_000)
    found = values("".join(Scrapes(sources(topic, topic.state(TP).leader)).text("text/plain")))
    assert found["kafka_cluster_partition_underreplicated"] == 1
    assert found["kafka_server_replicamanager_underreplicatedpartitions"] == 1
    assert found["kafka_cluster_partition_insyncreplicascount"] == 2


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
