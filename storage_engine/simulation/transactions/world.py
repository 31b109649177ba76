"""All that is transactional in one run: producers of both kinds, two queries of one sink, a reader,
and what is known of their transactions.

Rule: everything that they choose comes from generators of their own, so that the same seed without
them is the run that it was before there were any.
"""

import random
from collections.abc import Callable, Sequence

from storage_engine.broker.hosted_partition import HostedPartition
from storage_engine.core.ids import TopicPartition
from storage_engine.core.internal_topics import TRANSACTION_STATE_TOPIC
from storage_engine.simulation.checkers import Checker
from storage_engine.simulation.cluster import SimulatedCluster
from storage_engine.simulation.copies import BatchNote
from storage_engine.simulation.faults import Profile
from storage_engine.simulation.trace import Trace
from storage_engine.simulation.transactions.actor import RETRY_MS
from storage_engine.simulation.transactions.drivers import Query
from storage_engine.simulation.transactions.ledger import TransactionLedger
from storage_engine.simulation.transactions.producers import TransactionalProducer, WritingProducer
from storage_engine.simulation.transactions.reader import CommittedReader
from storage_engine.simulation.transactions.state_log import PARTITIONS, CommittedDecisions

STATE_PARTITIONS = [TopicPartition(TRANSACTION_STATE_TOPIC, p) for p in range(PARTITIONS)]
BEGIN_MS = (1, 500)


def settings_of(profile: Profile) -> dict[str, str]:
    """Of the brokers."""
    found = {
        "transaction.state.log.num.partitions": str(PARTITIONS),
        "transaction.state.log.min.isr": str(profile.min_insync_replicas),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    if profile.durable:
        found["flush.before.ack"] = "true"
    return found


class TransactionalWorld:
    """Of one run."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        checker: Checker,
        trace: Trace,
        profile: Profile,
        seed: int,
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.cluster = cluster
        self.checker = checker
        self.trace = trace
        self.choose = random.Random(f"transactions {seed}")
        self.partitions = partitions
        self.over = False
        self.waiting: set[str] = set()
        self.ledger = TransactionLedger(checker.record)
        self.decisions = CommittedDecisions(cluster, checker)
        self.reader = CommittedReader(
            cluster, checker, random.Random(f"reader {seed}"), self.ledger, partitions
        )
        self._numbers = 0
        self._ends: dict[TopicPartition, int] | None = None
        """What the reader has to come to, once all is decided."""
        checker.expect_topic(
            TRANSACTION_STATE_TOPIC,
            unclean=False,
            min_in_sync=profile.min_insync_replicas,
            durable=profile.durable,
        )
        checker.on_committed = self._on_committed
        checker.on_leader = self._on_leader

    def start(self) -> None:
        self.later(TransactionalProducer(self, "p").run, within_ms=BEGIN_MS)
        for name in ("v", "w"):
            self.later(WritingProducer(self, name).run, within_ms=BEGIN_MS)
        for name in ("q", "r"):
            self.later(Query(self, name).run, within_ms=BEGIN_MS)
        self.reader.run()

    def finish(self) -> None:
        """Nothing new is begun; what nobody ends any more times out."""
        self.over = True
        self.reader.stays = True

    def left(self) -> list[str]:
        """What is still to come after that."""
        found = [f"{each} waits" for each in sorted(self.waiting)]
        found += self.ledger.open_parts()
        if found:
            return found
        if self._ends is None:
            self._ends = {
                tp: self.checker.record(tp).committed.end_offset for tp in self.partitions
            }
        return [
            f"{self.reader.positions[tp]} of {end} was read of {tp}"
            for tp, end in self._ends.items()
            if self.ledger.is_readable(tp) and self.reader.positions[tp] < end
        ]

    @property
    def committed(self) -> int:
        """Transactions."""
        return sum(bool(each.outcome) for each in self.ledger.transactions)

    @property
    def batches(self) -> int:
        """Micro-batches that are committed."""
        return sum(each.winners is not None for each in self.ledger.batches.values())

    # --- for those who act in it ---

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def later(self, act: Callable[[], None], *, within_ms: tuple[int, int] = RETRY_MS) -> None:
        self.cluster.loop.call_later(self.choose.randint(*within_ms), act)

    # --- what happens ---

    def _on_committed(self, tp: TopicPartition, note: BatchNote) -> None:
        if tp in self.partitions:
            self.ledger.on_committed(tp, note)

    def _on_leader(self, partition: HostedPartition) -> None:
        tp = partition.topic_partition
        if tp in self.partitions:
            self.ledger.is_stable(
                "leader",
                tp,
                partition.leader_epoch,
                partition.last_stable_offset,
                partition.high_watermark,
            )
