"""Real brokers under random trouble in simulated time: nothing acknowledged by acks=all is lost or
doubled, and the cluster heals. The seed of the simulation to come; a failing seed replays."""

import random

import pytest

from simulation.world.broker import SESSION_TIMEOUT_MS
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import SessionState, TransportError
from storage_engine.protocol.records.record_batch import iter_headers
from storage_engine.tests.sampling import seeds

PARTITIONS = [TopicPartition("t", p) for p in range(3)]


class Trouble:
    """One run."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.numbers = 0
        self.acknowledged: dict[tuple[TopicPartition, int], bytes] = {}

    def one(self) -> None:
        cluster, choose = self.cluster, self.random
        broker = choose.choice(cluster.brokers)
        match choose.randint(0, 19):
            case 0 if broker.up:
                broker.kill(session_ends_at_once=choose.random() < 0.5)
            case 1 | 2 | 3 if not broker.up:
                broker.start()
            case 4 if broker.up and broker.session.state is SessionState.CONNECTED:
                broker.session.cut_off()
            case 5 | 6 if broker.up and broker.session.state is SessionState.SUSPENDED:
                broker.session.reconnect()
            case 7:
                other = choose.choice(cluster.brokers)
                if other is not broker:
                    cluster.network.cut(broker.id, other.id)
            case 8 | 9:
                cluster.network.heal()
            case 10 if broker.up:
                broker.session.lose_answers = choose.randint(1, 3)
            case _:
                for _ in range(choose.randint(1, 5)):
                    self.produce(choose.choice(PARTITIONS))
        cluster.loop.run_for(int(choose.expovariate(1 / 400)))

    def produce(self, tp: TopicPartition) -> None:
        """To whoever says that it leads: an old leader must not acknowledge."""
        leaders = [
            b for b in self.cluster.brokers if b.up and (p := b.replicas.get(tp)) and p.leader
        ]
        if not leaders:
            return
        self.numbers += 1
        payload = b"<record %d>" % self.numbers

        def on_reply(answer) -> None:
            if not isinstance(answer, TransportError) and not answer.partitions[0].error_code:
                key = (tp, answer.partitions[0].base_offset)
                assert key not in self.acknowledged, "an offset was acknowledged twice"
                self.acknowledged[key] = payload

        self.cluster.send_produce(self.random.choice(leaders).id, tp, payload, on_reply)

    def heal(self) -> None:
        cluster = self.cluster
        cluster.network.heal()
        for broker in cluster.brokers:
            if not broker.up:
                broker.start()
            broker.session.lose_answers = 0
            if broker.session.state is SessionState.SUSPENDED:
                broker.session.reconnect()
        cluster.loop.run_for(3 * SESSION_TIMEOUT_MS)
        for tp in PARTITIONS:
            cluster.produced(tp, b"<end>")
            cluster.wait_in_sync(tp, 1, 2, 3)
        cluster.loop.run_for(2000)

    def check(self) -> None:
        for tp in PARTITIONS:
            logs = [broker.logs.logs[tp] for broker in self.cluster.brokers]
            found = [self._contents(log) for log in logs]
            assert found[0] == found[1] == found[2], f"the replicas of {tp} differ"
            for (where, offset), payload in self.acknowledged.items():
                if where == tp:
                    assert found[0].get(offset) == payload, f"{tp} at {offset}"

    def _contents(self, log) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = log.log_start_offset
        while (piece := log.reads.read(offset, max_bytes=1 << 20)) is not None:
            data = bytes(piece.view())
            for position, header in iter_headers(data):
                found[header.base_offset] = data[position + 61 : position + header.size_in_bytes]
                offset = header.next_offset
        return found


@pytest.mark.parametrize("seed", seeds(12))
def test_nothing_acknowledged_is_lost_and_the_cluster_heals(tmp_path, seed):
    cluster = SimulatedCluster(tmp_path, min_insync_replicas="1")
    try:
        assert cluster.create_topic("t", partitions=3).error_code == 0
        trouble = Trouble(cluster, seed)
        for _ in range(120):
            trouble.one()
        trouble.heal()
        trouble.check()
        assert trouble.acknowledged
    finally:
        cluster.close()
