"""The ends of partitions without a replica on the broker, asked of their leaders."""

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.metrics.end_offsets import ASK_MS, EndOffsets
from storage_engine.core.ids import TopicPartition

TP = TopicPartition("t", 0)


def test_ends_of_partitions_without_a_replica_here_are_asked_of_their_leaders(tmp_path):
    cluster = SimulatedCluster(tmp_path, 4)
    try:
        cluster.create_topic("t")
        for payload in (b"first", b"second"):
            cluster.produced(TP, payload)
        elsewhere = next(each for each in cluster.brokers if TP not in each.logs.logs)
        parts = elsewhere.parts
        ends = EndOffsets(parts.cluster.metadata, parts.ports.transport, parts.ports.clock)
        assert ends.of(TP) is None
        ends.ask()
        cluster.loop.run_for(1_000)
        assert ends.of(TP) == 2
        cluster.produced(TP, b"third")
        ends.ask()
        cluster.loop.run_for(1_000)
        assert ends.of(TP) == 2, "leaders are not asked at each scrape"
        cluster.loop.run_for(ASK_MS)
        ends.ask()
        cluster.loop.run_for(1_000)
        assert ends.of(TP) == 3
        for broker in cluster.brokers:
            if broker is not elsewhere:
                broker.kill()
        cluster.loop.run_for(120_000)
        assert ends.of(TP) is None, "what was heard long ago is told no more"
    finally:
        cluster.close()
