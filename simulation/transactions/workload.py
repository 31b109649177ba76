"""The transactional clients of one run, and their checks: producers of both kinds, two queries of
one sink, readers of records and of a group's offsets, and the ledgers of their transactions.

The logs of the coordinators have small segments and are compacted all the time.
"""

from collections.abc import Sequence
from functools import partial

from simulation.checks.copies import BatchNote
from simulation.shared import Profile, Run
from simulation.transactions.clients import World
from simulation.transactions.copied_rows import CopiedRows
from simulation.transactions.group_ledger import GROUP_STATE
from simulation.transactions.group_offsets import OffsetReader
from simulation.transactions.producers import TransactionalProducer, WritingProducer
from simulation.transactions.reader import CommittedReader
from simulation.transactions.sink import SINK, Query
from simulation.transactions.state_log import PARTITIONS, StateHistory, state_partition_of
from simulation.workload import WorkloadClient
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.messages import incremental_alter_configs

STATE_PARTITIONS = [
    *(TopicPartition(TRANSACTION_STATE_TOPIC, p) for p in range(PARTITIONS)),
    GROUP_STATE,
]
BEGIN_MS = (1, 500)
COPYING = 0.5
"""The share of runs with queries that copy one source."""
TOPIC_CONFIG = 2
"""The resource_type of IncrementalAlterConfigs."""
COMPACTED = {
    TRANSACTION_STATE_TOPIC: {"segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.1"},
    GROUP_STATE.topic: {"segment.bytes": "1500", "min.cleanable.dirty.ratio": "0.1"},
}
"""The settings of the coordinators' topics. A broker creates them with larger segments, so they are
altered afterwards. Tombstones stay: a replica that is away while they go keeps what they deleted,
in Kafka too."""

WITH_MEMBERS = {
    GROUP_STATE.topic: {"segment.bytes": "12000", "min.cleanable.dirty.ratio": "0.1"},
}
"""The same where a batch of members' records may be longer than a small segment."""


def settings_of(profile: Profile) -> dict[str, str]:
    """Return the settings of the brokers."""
    found = {
        "transaction.state.log.num.partitions": str(PARTITIONS),
        "transaction.state.log.min.isr": str(profile.min_insync_replicas),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        "offsets.topic.num.partitions": "1",
        "log.cleaner.backoff.ms": "400",
        "log.flush.scheduler.interval.ms": "400",
    }
    if profile.durable:
        found["flush.before.ack"] = "true"
    return found


class Transactions(World):
    """The transactional clients of one run, and their checks."""

    ends = "every transaction ends, and readers come to its end"

    def __init__(
        self, run: Run, partitions: Sequence[TopicPartition], *, has_members: bool = False
    ) -> None:
        """`has_members`: the groups' log has records of members, too, some thousand bytes each."""
        super().__init__(run, partitions)
        self._compacted = COMPACTED | (WITH_MEMBERS if has_members else {})
        self.history = StateHistory(run, STATE_PARTITIONS)
        self.offset_reader = OffsetReader(self)
        self.copied = CopiedRows(lambda: self.checker.record(state_partition_of(SINK)).unclean)
        self.ledger.on_won = self.copied.on_won
        self.reader = CommittedReader(run, self.ledger, partitions)
        self._ends: dict[TopicPartition, int] | None = None
        """The offsets that the reader has to reach, once all is decided."""
        run.expect_topic(TRANSACTION_STATE_TOPIC, compacted=True)
        run.expect_topic(GROUP_STATE.topic, min_in_sync=1, compacted=True)
        run.checker.on_committed.append(self._on_committed)
        run.checker.on_leader = self._on_leader

    def start(self) -> None:
        for name in ("o", "p"):
            self.later(TransactionalProducer(self, name).run, within_ms=BEGIN_MS)
        self.later(WritingProducer(self, "v").run, within_ms=BEGIN_MS)
        copies = self.choose.random() < COPYING
        for name in ("q", "r"):
            query = Query(self, name, self.copied, copies=copies)
            self.later(query.run, within_ms=BEGIN_MS)
        self.reader.run()
        self.later(self.offset_reader.run, within_ms=BEGIN_MS)
        for topic in self._compacted:
            self.later(partial(self._make_segments_small, topic))
        self.history.start()

    def finish(self) -> None:
        """Begin nothing new; transactions without a living client time out."""
        self.over = True
        self.reader.stays = True

    def left(self) -> list[str]:
        """Return what is still to come after `finish`."""
        found = [f"{each} waits" for each in sorted(self.waiting)]
        found += self.ledger.open_parts()
        if found:
            return found
        if self.ledger.is_readable(GROUP_STATE) and not self.offset_reader.has_ended:
            self.offset_reader.read_last()
            return ["the group's offsets are not stable"]
        found = self._unstable()
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

    def check_end(self) -> None:
        """Check the ledgers when nothing is left."""
        self.ledger.check_end()
        self.groups.check_end(self.ledger.is_void)
        self.copied.check_end(
            is_complete=not any(self.checker.record(tp).unclean for tp in self.partitions)
        )
        self.history.check_compacted()

    def counts(self) -> dict[str, int]:
        """Return the counts of what was done in the run."""
        return {
            "transactions": sum(bool(each.outcome) for each in self.ledger.transactions),
            "batches": sum(each.winners is not None for each in self.ledger.batches.values()),
            "offset commits": self.groups.committed,
            "copied records": self.copied.count,
            "compactions": self.history.passes,
        }

    def _on_committed(self, tp: TopicPartition, note: BatchNote, broker: int) -> None:
        if tp in self.partitions:
            self.ledger.on_committed(tp, note)
        elif tp.topic == TRANSACTION_STATE_TOPIC:
            self.decisions.on_committed(self.history.note(tp, note, broker))
        elif tp == GROUP_STATE:
            batch = self.history.note(tp, note, broker)
            if note.marker_commits is None:
                transaction = self.groups.on_data(note, batch)
                if transaction is not None:
                    self.ledger.sends_offsets(transaction, tp, note)
                self.ledger.on_committed(tp, note)
            else:
                self.ledger.on_committed(tp, note)
                self.groups.on_marker(note)

    def _on_leader(self, partition: HostedPartition) -> None:
        tp = partition.topic_partition
        if tp in self.partitions or tp == GROUP_STATE:
            self.ledger.is_stable(
                "leader",
                tp,
                partition.leader_epoch,
                partition.last_stable_offset,
                partition.high_watermark,
            )

    def _unstable(self) -> list[str]:
        """Return the partitions whose last stable offset is not where their log ends: also what a
        loss of power has left open is ended."""
        found = []
        for tp in [*self.partitions, GROUP_STATE]:
            record = self.checker.record(tp)
            leader = None if record.state is None else record.state.leader
            if leader is None or leader == -1:
                continue
            partition = self.cluster[leader].replicas.get(tp)
            if partition is not None:
                stable, end = partition.last_stable_offset, partition.log.log_end_offset
                committed = record.committed.end_offset
                if stable < (partition.high_watermark if record.unclean else committed):
                    found.append(f"{tp} is stable up to {stable}, and ends at {end}")
        return found

    def _make_segments_small(self, topic: str) -> None:
        """Alter the topic's settings, as an administrator does, with retries."""
        resource = incremental_alter_configs.IncrementalAlterConfigsRequest.AlterConfigsResource
        settings = [
            resource.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in self._compacted[topic].items()
        ]
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[resource(resource_type=TOPIC_CONFIG, resource_name=topic, configs=settings)],
            validate_only=False,
        )

        def on_reply(
            answer: incremental_alter_configs.IncrementalAlterConfigsResponse | TransportError,
        ) -> None:
            if isinstance(answer, TransportError) or answer.responses[0].error_code:
                self.later(lambda: self._make_segments_small(topic))

        broker = self.choose.choice(self.cluster.brokers).id
        administrator = WorkloadClient(self.run, self.choose, "settings")
        administrator.request(broker, incremental_alter_configs.API, 1, request, on_reply)
