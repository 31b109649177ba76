"""The typed topics of one run, their clients and the ledger of their rows.

One topic keeps everything, one is compacted all the time.
"""

from simulation.checks.copies import BatchNote
from simulation.shared import Run
from simulation.typed.ledger import TypedLedger
from simulation.typed.producers import TypedProducer, WrongProducer
from simulation.typed.reader import TypedReader
from simulation.typed.rows import SCHEMA
from simulation.workload import Workload
from storage_engine.core.ids import TopicPartition

ROWS = TopicPartition("rows", 0)
NEWEST = TopicPartition("newest-rows", 0)
FIRST_NUMBER = 100
"""The number of the first producer: those of the other topics have lower ones."""
BROKER_SETTINGS = {"log.cleaner.backoff.ms": "400", "log.flush.scheduler.interval.ms": "400"}
COMPACTED = {
    "cleanup_policy": "compact",
    "segment_bytes": "4000",
    "min_cleanable_dirty_ratio": "0.1",
}


class TypedWorkload(Workload):
    """Topics, clients and ledger."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.ledger = TypedLedger(run, [NEWEST])
        self.reader = TypedReader(run, self.ledger, [ROWS], [NEWEST])
        run.expect_topic(ROWS.topic)
        run.expect_topic(NEWEST.topic, compacted=True)
        run.checker.on_committed.append(self._on_committed)

    def create_topics(self) -> None:
        schema = {"headrace_schema": SCHEMA.to_json()}
        self.run.create_topic(ROWS.topic, schema)
        self.run.create_topic(NEWEST.topic, schema | COMPACTED)

    def start(self) -> None:
        run, choose = self.run, self.run.chooser("typed")
        for number, tp in enumerate((ROWS, ROWS, NEWEST), FIRST_NUMBER):
            producer = TypedProducer(
                run,
                run.chooser("typed producer", number),
                tp,
                number=number,
                pause_ms=choose.choice((200, 500)),
                ledger=self.ledger,
            )
            self.producers.append(producer)
            producer.run()
        wrong = run.chooser("wrong producer")
        number = FIRST_NUMBER + len(self.producers)
        WrongProducer(run, wrong, ROWS, number=number, pause_ms=2000, ledger=self.ledger).run()
        self.reader.run()
        self.ledger.start()

    def check_end(self) -> None:
        """Compare all replicas once more."""
        self.ledger.check_compacted()

    def counts(self) -> dict[str, int]:
        return {
            "typed rows": len(self.ledger),
            "typed rows read": self.reader.rows,
            "typed compactions": self.ledger.passes,
        }

    def _on_committed(self, tp: TopicPartition, note: BatchNote, broker: int) -> None:
        if tp in (ROWS, NEWEST):
            self.ledger.on_committed(tp, note, broker)
