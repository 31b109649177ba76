"""The workloads of plain records. The oldest records of one topic go, by requests and by retention;
what is left is read as it was written.
"""

import random

from simulation.faults.disk_faults import DELETED
from simulation.shared import Run
from simulation.workload import Workload, WorkloadConsumer, WorkloadProducer
from storage_engine.core.ids import TopicPartition

SAFE = [TopicPartition("t", 0), TopicPartition("t", 1)]
UNCLEAN = TopicPartition("u", 0)
FIRST_OF_DELETED = 200
"""The number of the first producer of records that are deleted."""
SHORT = {"segment_bytes": "1500", "retention_bytes": "5000", "file_delete_delay_ms": "100"}


class PlainRecords(Workload):
    """A topic that keeps everything, and one whose leaders may be elected uncleanly."""

    def __init__(self, run: Run, choose: random.Random) -> None:
        super().__init__(run)
        self._choose = choose
        run.expect_topic(SAFE[0].topic)
        run.checker.expect_topic(UNCLEAN.topic, unclean=True, min_in_sync=1)

    def create_topics(self) -> None:
        self.run.create_topic(SAFE[0].topic, partitions=len(SAFE))
        self.run.cluster.create_topic(UNCLEAN.topic, 1, unclean_leader_election_enable="true")

    def start(self) -> None:
        run, choose = self.run, self._choose
        kinds = [
            (SAFE[0], -1, True),
            (SAFE[0], -1, False),
            (SAFE[1], -1, True),
            (SAFE[1], 1, False),
            (choose.choice(SAFE), 0, False),
            (UNCLEAN, -1, False),
        ]
        for number, (tp, acks, idempotent) in enumerate(kinds, 1):
            producer = WorkloadProducer(
                run,
                run.chooser("producer", number),
                tp,
                number=number,
                pause_ms=choose.choice((100, 300, 700)),
                acks=acks,
                idempotent=idempotent,
            )
            self.producers.append(producer)
            producer.run()
        for number in (1, 2):
            generator, pause_ms = run.chooser("consumer", number), choose.choice((250, 600))
            WorkloadConsumer(
                run, generator, [*SAFE, UNCLEAN], number=number, pause_ms=pause_ms
            ).run()


class DeletedRecords(Workload):
    """A topic whose oldest records go. A replica may lack what was committed, as that of a
    compacted topic."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        run.expect_topic(DELETED.topic, compacted=True)

    def create_topics(self) -> None:
        self.run.create_topic(DELETED.topic, SHORT)

    def start(self) -> None:
        run = self.run
        for number, (acks, idempotent) in enumerate(((-1, True), (1, False)), FIRST_OF_DELETED):
            producer = WorkloadProducer(
                run,
                run.chooser("deleted records", number),
                DELETED,
                number=number,
                pause_ms=150,
                acks=acks,
                idempotent=idempotent,
            )
            self.producers.append(producer)
            producer.run()
        generator = run.chooser("late consumer")
        LateConsumer(run, generator, [DELETED], number=FIRST_OF_DELETED, pause_ms=250).run()


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
