"""A topic whose oldest records go, by requests and by retention, and its clients. What is left is
read as it was written.
"""

import random

from simulation.checks.checkers import Checker
from simulation.faults.disk_faults import DELETED
from simulation.faults.faults import Profile
from simulation.workload import WorkloadConsumer, WorkloadProducer
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition

FIRST_NUMBER = 200
"""The number of the first producer."""
SETTINGS = {"segment_bytes": "1500", "retention_bytes": "5000", "file_delete_delay_ms": "100"}


class DeletedRecords:
    """The topic and its clients."""

    def __init__(
        self, cluster: SimulatedCluster, checker: Checker, profile: Profile, seed: int
    ) -> None:
        self._cluster = cluster
        self._checker = checker
        self._profile = profile
        self._seed = seed
        self.producers: list[WorkloadProducer] = []
        # A replica may lack what was committed, as that of a compacted topic.
        checker.expect_topic(
            DELETED.topic,
            unclean=False,
            min_in_sync=profile.min_insync_replicas,
            durable=profile.durable,
            compacted=True,
        )

    def create_topic(self) -> None:
        settings = SETTINGS | {"min_insync_replicas": str(self._profile.min_insync_replicas)}
        if self._profile.durable:
            settings["flush_before_ack"] = "true"
        self._cluster.create_topic(DELETED.topic, 1, **settings)

    def start(self) -> None:
        for number, (acks, idempotent) in enumerate(((-1, True), (1, False)), FIRST_NUMBER):
            producer = WorkloadProducer(
                self._cluster,
                self._checker,
                random.Random(f"deleted records {self._seed} {number}"),
                DELETED,
                number=number,
                acks=acks,
                idempotent=idempotent,
                pause_ms=150,
            )
            self.producers.append(producer)
            producer.run()
        LateConsumer(
            self._cluster,
            self._checker,
            random.Random(f"late consumer {self._seed}"),
            [DELETED],
            number=FIRST_NUMBER,
            pause_ms=250,
        ).run()


class LateConsumer(WorkloadConsumer):
    """Goes on where the log begins when what it wants is gone."""

    def _out_of_range(self, tp: TopicPartition, leader: int, epoch: int, offset: int) -> None:
        broker = self.cluster[leader]
        partition = broker.replicas.get(tp) if broker.serving else None
        start = 0 if partition is None else partition.log.log_start_offset
        if offset < start:
            self.positions[tp] = start
        elif partition is not None and partition.leader_epoch == epoch:
            super()._out_of_range(tp, leader, epoch, offset)
