"""The figures of replicas in a scrape."""

import pytest

from storage_engine.broker.metrics.scrapes import Scrapes
from storage_engine.core.ids import TopicPartition
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
