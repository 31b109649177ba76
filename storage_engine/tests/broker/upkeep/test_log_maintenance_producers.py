"""Producers that expire in many logs at once: clients choose how many there are."""

from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.upkeep import log_maintenance
from storage_engine.core.ids import TopicPartition
from storage_engine.core.retained.producer_state import SequencedBatch

LOGS, PRODUCERS = 4, 3


def test_they_are_forgotten_in_several_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(log_maintenance, "FORGOTTEN_A_TURN", 2 * PRODUCERS)
    cluster = SimulatedCluster(tmp_path, 1, default_replication_factor="1")
    assert cluster.create_topic("t", partitions=LOGS).error_code == 0
    broker = cluster[1]

    def logs():
        found = [broker.replicas.get(TopicPartition("t", number)) for number in range(LOGS)]
        return [each.log for each in found if each is not None]

    cluster.loop.run_until(lambda: len(logs()) == LOGS)
    for log in logs():
        for number in range(PRODUCERS):
            batch = SequencedBatch(0, 0, 0, 0, 1)
            log.producer_state.record(number, 0, batch, now_ms=-(10**15))

    def known() -> int:
        return sum(len(log.producer_state) for log in logs())

    broker.parts.upkeep.maintenance._expire_producers()
    assert known() == (LOGS - 2) * PRODUCERS
    cluster.loop.run_for(10)
    assert known() == 0
    cluster.close()
