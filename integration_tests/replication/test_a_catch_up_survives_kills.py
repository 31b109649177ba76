"""R-REP2, R-REP8: a replica that has nothing fetches all of a partition, runs of batches at a time,
while its producer goes on. Itself or its leader is killed with SIGKILL in the middle: in the end
the replicas are the same byte for byte, and have what was acknowledged in order and once.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from integration_tests.support.cluster_support import (
    admin,
    create_topic,
    leader_of,
    running_cluster,
    wait_for_isr,
    wait_until,
)
from integration_tests.support.steady_producer import SteadyProducer, check_kept
from integration_tests.support.stored_logs import assert_files_are_sound, assert_replicas_agree
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.sampling import in_full
from storage_engine.tools.local.local_cluster import LocalCluster

TP = TopicPartition("caught-up", 0)
BROKERS = (1, 2, 3)
RECORD_BYTES = 2000
BEHIND_RECORDS = 12_000
"""Some 24 MB, in a hundred answers and more."""
SETTINGS = (
    ("auto.leader.rebalance.enable", "false"),
    # Some 10 batches an answer: many answers, and many turns.
    ("replica.fetch.max.bytes", "131072"),
    ("replica.fetch.response.max.bytes", "262144"),
    ("log.segment.bytes", "8388608"),
)
ATTEMPTS = 5
"""A replica that was faster than the kill begins anew."""


class CatchUp:
    """A cluster whose follower `cold` has nothing of the partition."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.client = admin(cluster)
        self.leader = leader_of(self.client, TP.topic)
        self.cold = next(broker for broker in BROKERS if broker != self.leader)

    def folder(self, broker: int) -> Path:
        return self.directory / f"broker-{broker}" / "data" / str(TP)

    def stored_bytes(self, broker: int) -> int:
        return sum(path.stat().st_size for path in self.folder(broker).glob("*.log"))

    def forget_all(self) -> None:
        """The dead replica has nothing any more."""
        shutil.rmtree(self.folder(self.cold))

    def start_and_kill(self, victim: Callable[[], int], share: float) -> int:
        """Starts the cold replica and kills a broker once it has that share; which that was."""
        for _ in range(ATTEMPTS):
            self.cluster.start_broker(self.cold)
            whole = self.stored_bytes(self.leader)
            wait_until(
                lambda whole=whole: self.stored_bytes(self.cold) > share * whole, "it catches up"
            )
            killed = victim()
            self.cluster.kill_broker(killed)
            if self.stored_bytes(self.cold) < 0.95 * whole:
                return killed
            # It was faster.
            if killed != self.cold:
                self.cluster.start_broker(killed)
                wait_for_isr(self.client, TP.topic, 3)
                self.leader = leader_of(self.client, TP.topic)
                self.cluster.kill_broker(self.cold)
            self.forget_all()
        raise AssertionError("a replica that catches up was never killed in the middle")


@in_full
@pytest.mark.parametrize("victim", ["follower", "leader"])
def test_a_replica_that_catches_up_has_what_was_acknowledged_whoever_is_killed(tmp_path, victim):
    with running_cluster(tmp_path, settings=SETTINGS) as cluster:
        create_topic(cluster, TP.topic, config={"min.insync.replicas": "1"})
        wait_for_isr(admin(cluster), TP.topic, 3)
        case = CatchUp(cluster, tmp_path)
        with SteadyProducer(cluster.bootstrap_servers, TP.topic, padding=RECORD_BYTES) as producer:
            cluster.kill_broker(case.cold)
            wait_until(
                lambda: len(producer.acknowledged) > BEHIND_RECORDS, "the others have much more"
            )
            case.forget_all()
            if victim == "follower":
                case.start_and_kill(lambda: case.cold, 0.15)
                # From where it was, after its recovery.
                case.start_and_kill(lambda: case.cold, 0.5)
                cluster.start_broker(case.cold)
            else:
                killed = case.start_and_kill(lambda: leader_of(case.client, TP.topic), 0.15)
                before = len(producer.acknowledged)
                wait_until(
                    lambda: len(producer.acknowledged) > before + 500, "the next leader takes more"
                )
                assert leader_of(case.client, TP.topic) not in (killed, case.cold)
                cluster.start_broker(killed)
            wait_for_isr(case.client, TP.topic, 3)
            check_kept(cluster.bootstrap_servers, TP.topic, producer)
        for broker in BROKERS:
            cluster.stop_broker(broker)
        assert_replicas_agree(tmp_path, TP, compacts=False)
        assert_files_are_sound(tmp_path)
