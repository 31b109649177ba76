"""The typed topics of one run, their clients and the ledger of their rows.

One topic keeps everything, one is compacted all the time. All choices here come from generators of
their own. The topics change what the brokers do, and so a seed has another course with them.
"""

import random
from collections.abc import Callable
from uuid import UUID

from simulation.checks.checkers import Checker
from simulation.checks.copies import BatchNote
from simulation.faults.faults import Profile
from simulation.typed.ledger import TypedLedger
from simulation.typed.producers import TypedProducer, WrongProducer
from simulation.typed.reader import TypedReader
from simulation.typed.rows import SCHEMA
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.ids import TopicPartition

ROWS = TopicPartition("rows", 0)
NEWEST = TopicPartition("newest-rows", 0)
FIRST_NUMBER = 100
"""The number of the first producer: those of the other topics have lower ones."""
CHECK_MS = 500
"""How often compacted replicas are compared."""
BROKER_SETTINGS = {
    "log.cleaner.backoff.ms": "400",
    "log.flush.scheduler.interval.ms": "400",
}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "4000",
    "min_cleanable_dirty_ratio": "0.1",
}


class TypedWorld:
    """Topics, clients and ledger."""

    def __init__(
        self, cluster: SimulatedCluster, checker: Checker, profile: Profile, seed: int
    ) -> None:
        self._cluster = cluster
        self._checker = checker
        self._profile = profile
        self._seed = seed
        self._choose = random.Random(f"typed {seed}")
        self._ids: dict[str, UUID] = {}
        self.ledger = TypedLedger(cluster, checker, self._ids.__getitem__, [NEWEST])
        self.producers: list[TypedProducer] = []
        self.reader = TypedReader(
            cluster,
            checker,
            random.Random(f"typed reader {seed}"),
            self.ledger,
            [ROWS],
            [NEWEST],
        )
        for tp in (ROWS, NEWEST):
            checker.expect_topic(
                tp.topic,
                unclean=False,
                min_in_sync=profile.min_insync_replicas,
                durable=profile.durable,
                compacted=tp is NEWEST,
            )
        self._others_on_committed = checker.on_committed
        checker.on_committed = self._on_committed

    def create_topics(self) -> None:
        """Create both, with their schema."""
        settings = {
            "headrace_schema": SCHEMA.to_json(),
            "min_insync_replicas": str(self._profile.min_insync_replicas),
        }
        if self._profile.durable:
            settings["flush_before_ack"] = "true"
        self._cluster.create_topic(ROWS.topic, 1, **settings)
        self._cluster.create_topic(NEWEST.topic, 1, **settings, **COMPACTED)

    def start(self) -> None:
        for tp in (ROWS, NEWEST):
            self._ids[tp.topic] = self._cluster.topic_id(tp.topic)
        for number, tp in enumerate((ROWS, ROWS, NEWEST), FIRST_NUMBER):
            producer = TypedProducer(
                self._cluster,
                self._checker,
                random.Random(f"typed producer {self._seed} {number}"),
                tp,
                number=number,
                pause_ms=self._choose.choice((200, 500)),
                ledger=self.ledger,
            )
            self.producers.append(producer)
            producer.run()
        WrongProducer(
            self._cluster,
            self._checker,
            random.Random(f"wrong producer {self._seed}"),
            ROWS,
            number=FIRST_NUMBER + len(self.producers),
            pause_ms=2000,
            topic_id=self.ledger.topic_id,
        ).run()
        self.reader.run()
        self._later(CHECK_MS, self._compare_replicas)

    def check_end(self) -> None:
        """Compare all replicas once more."""
        self.ledger.check_compacted()

    def counts(self) -> dict[str, int]:
        """Return the counts of what was done in the run."""
        return {
            "typed rows": len(self.ledger),
            "typed rows read": self.reader.rows,
            "typed compactions": self.ledger.passes,
        }

    def _on_committed(self, tp: TopicPartition, note: BatchNote, broker: int) -> None:
        if tp in (ROWS, NEWEST):
            self.ledger.on_committed(tp, note, broker)
        elif self._others_on_committed is not None:
            self._others_on_committed(tp, note, broker)

    def _compare_replicas(self) -> None:
        self.ledger.check_compacted()
        self._later(CHECK_MS, self._compare_replicas)

    def _later(self, delay_ms: int, act: Callable[[], None]) -> None:
        self._cluster.loop.call_later(delay_ms, act)
