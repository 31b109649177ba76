"""The checks of invariants after every event.

Checks are incremental. After an event only the broker in which it happened is checked, and of it
only the partitions whose end, high watermark, epoch or role has changed; a write to ZooKeeper is
checked when it is made. `check_everything` reads all logs again, at intervals and at the end, to be
sure that nothing changed unnoticed.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from simulation.checks.closed_sessions import ClosedSessions
from simulation.checks.copies import NotedLog, noted
from simulation.checks.ledger import ExpectedTopic, InvariantViolation, OnCommitted, PartitionRecord
from simulation.checks.lives import Life, ReplicaSeen
from simulation.checks.trace import Trace
from simulation.world.broker import SimulatedBroker
from simulation.world.clock import ProcessLoop
from simulation.world.cluster import SimulatedCluster
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.ids import TAIL_LOST_NOW, BrokerId, TopicPartition
from storage_engine.log.dirs.log_dir import BOOT_ID_FILE
from storage_engine.log.partition_log import PartitionLog
from storage_engine.log.state.checkpoints import (
    HIGH_WATERMARKS_FILE,
    RECOVERY_POINTS_FILE,
    read_offsets,
)
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode, ControllerEpochZNode
from storage_engine.zookeeper.znodes.topic_znodes import PartitionStateZNode, TopicZNode

DELETIONS_PATH = "/admin/delete_topics"

_STATE_PARTS = 7
"""The number of parts of "/brokers/topics/<topic>/partitions/<partition>/state", split at
slashes."""


class Checker:
    """Watches one cluster. Topics have to be announced by `expect_topic` before they are
    created."""

    def __init__(self, cluster: SimulatedCluster, trace: Trace) -> None:
        self._cluster = cluster
        self._trace = trace
        self.records: dict[TopicPartition, PartitionRecord] = {}
        self._topics: dict[str, ExpectedTopic] = {}
        self.unwatched: set[str] = set()
        """Topics without records, of which nothing is checked: they may be deleted and made anew
        under the same name, so that their epochs begin anew."""
        self._registered_since: dict[int, int] = {}
        """For brokers that lost their power and have registered since, the first incarnation."""
        self._knows_registration: set[int] = set()
        """The brokers among these that have received, and so kept, their registration."""
        self._lives: dict[ProcessLoop, Life] = {}
        self._controller_epoch = 0
        self.disks_fail = False
        """Whether log dirs fail: brokers can't read them, and the checker can."""
        self.sessions = ClosedSessions(cluster, trace)
        self._lost_power: set[int] = set()
        """The brokers whose logs may be shorter than they were."""
        self.on_committed: list[OnCommitted] = []
        """Called with each committed batch, partition by partition in order, and the broker whose
        log has it in that event."""
        self.on_leader: Callable[[HostedPartition], None] | None = None
        """Called with leaders whose logs, high watermarks or epochs have changed."""

    def expect_topic(
        self,
        topic: str,
        *,
        unclean: bool,
        min_in_sync: int,
        durable: bool = False,
        compacted: bool = False,
    ) -> None:
        """Announce a topic that may be created."""
        self._topics[topic] = ExpectedTopic(unclean, min_in_sync, durable, compacted)

    def record(self, tp: TopicPartition) -> PartitionRecord:
        record = self.records.get(tp)
        if record is None:
            topic = self._topics[tp.topic]
            record = PartitionRecord(
                tp, topic.unclean, topic.min_in_sync, topic.is_compacted, self.on_committed
            )
            if not topic.is_durable:
                # The partition was created while their old sessions live: they are in its ISR
                # though they lost the power.
                record.cut = self._lost_power - self._registered_since.keys()
            self.records[tp] = record
        return record

    def lost_power(self, broker: SimulatedBroker) -> None:
        """Record that the broker's logs may end earlier from now on."""
        self._lost_power.add(broker.id)
        self._registered_since.pop(broker.id, None)
        self._knows_registration.discard(broker.id)
        for record in self.records.values():
            if not self._topics[record.partition.topic].is_durable:
                record.lose_power(broker.id)

    def started(self, broker: SimulatedBroker) -> None:
        """Record the beginning of a new life."""
        with self._cluster.seen_whole():
            self._started(broker)

    def _started(self, broker: SimulatedBroker) -> None:
        life = Life(broker)
        for log_dir in broker.config.log_dirs:
            if broker.disk.exists(log_dir):
                saved = read_offsets(broker.disk, log_dir / HIGH_WATERMARKS_FILE).offsets
                if self._may_lack_bytes(broker, log_dir):
                    # Unflushed bytes may be ones that a truncation had removed.
                    flushed = read_offsets(broker.disk, log_dir / RECOVERY_POINTS_FILE).offsets
                    saved = {tp: min(each, flushed.get(tp, 0)) for tp, each in saved.items()}
                for tp, known in saved.items():
                    life.saved.setdefault(tp, {})[log_dir] = known
        self._lives = {k: v for k, v in self._lives.items() if v.broker is not broker}
        self._lives[broker.loop] = life

    def _may_lack_bytes(self, broker: SimulatedBroker, log_dir: Path) -> bool:
        """Return True when no start has used the log dir since the power was lost."""
        path = log_dir / BOOT_ID_FILE
        known = broker.disk.read_file(path) if broker.disk.exists(path) else b""
        is_used = broker.id in self._registered_since
        is_used = is_used and known.decode().strip() == broker.disk.boot_id()
        return broker.id in self._lost_power and not is_used

    def after_event(self, process: ProcessLoop | None) -> None:
        """Check what the event may have changed."""
        life = self._lives.get(process) if process is not None else None
        if life is None or not life.broker.serving:
            return
        if not self.disks_fail:
            self._check_life(life)
            return
        with self._cluster.seen_whole():
            self._check_life(life)

    def _check_life(self, life: Life) -> None:
        broker = life.broker
        if broker.id in self._registered_since and broker.broker_epoch >= 0:
            self._knows_registration.add(broker.id)
        brokers = broker.metadata.brokers
        if brokers is not life.brokers_known:
            life.brokers_known = brokers
            self._check_metadata(life)
        logs = broker.logs.logs
        if logs != life.logs:
            self._check_deletions(life, logs)
        replicas = life.replicas
        for partition in broker.replicas:
            if partition.topic_partition.topic in self.unwatched:
                continue
            seen = replicas.get(partition.topic_partition)
            if seen is None:
                seen = replicas[partition.topic_partition] = ReplicaSeen()
            log, leader = partition.log, partition.leader
            if (
                log.log_end_offset != seen.end_offset
                or partition.high_watermark != seen.high_watermark
                or partition.leader_epoch != seen.leader_epoch
                or (leader is not None) is not seen.leading
                or log is not seen.log
            ):
                self._changed(life, partition, seen)
                seen.end_offset = log.log_end_offset

    def _check_deletions(self, life: Life, logs: dict[TopicPartition, PartitionLog]) -> None:
        """Check that no replica in sync is deleted, except with its topic. A log that exists may
        have been created anew in the same event."""
        broker, before = life.broker, life.logs
        life.logs = dict(logs)
        for tp, record in self.records.items():
            log, copy = logs.get(tp), record.copies.get(broker.id)
            if copy is None or not (log is None or log is not before.get(tp, log)):
                continue
            is_hidden = log is None and broker.logs.dirs.unusable_count > 0
            if not (is_hidden or self._is_same(log, record, copy)):
                self._trace.note(f"broker {broker.id} has deleted {tp}")
                del record.copies[broker.id]
                if self._cluster.zookeeper.data(f"{DELETIONS_PATH}/{tp.topic}") is None:
                    record.check_in_sync()

    @staticmethod
    def _is_same(log: PartitionLog | None, record: PartitionRecord, copy: NotedLog) -> bool:
        """Return True when a log that was opened, or that has taken the place of one in another log
        dir, has the records of `copy`."""
        if log is None:
            return False
        found = noted(log, record.history(), copy)
        if found.holds(copy) and copy.holds(found):
            return True
        # Of a compacted log that has parted from what is committed nobody can say what it lacks.
        has_parted = record.is_compacted and (record.unclean or not record.committed.holds(copy))
        return has_parted and found.end_offset == copy.end_offset

    def _check_metadata(self, life: Life) -> None:
        """Check R-CTL1: no order of a replaced controller is accepted after one of a newer
        controller."""
        metadata = life.broker.metadata
        for topic in metadata.topics():
            if topic in self.unwatched:
                continue
            for number, item in (metadata.partitions(topic) or {}).items():
                before = life.announced_epochs.get((topic, number), -1)
                if item.leader_epoch < before:
                    raise InvariantViolation(
                        "what brokers tell clients of leaders never goes back",
                        f"{topic}-{number} on broker {life.broker.id}: epoch {item.leader_epoch},"
                        f" after {before}",
                    )
                life.announced_epochs[topic, number] = item.leader_epoch

    def _changed(self, life: Life, partition: HostedPartition, seen: ReplicaSeen) -> None:
        record = self.record(partition.topic_partition)
        broker = life.broker
        if partition.log is not seen.log:
            seen.log = partition.log
            self._check_restart(life, partition, record)
        appended = self._follow_log(broker, partition, record)
        leading = partition.leader is not None
        if partition.leader_epoch != seen.leader_epoch:
            self._check_epoch(broker, partition, seen)
            seen.session = broker.session.session_id
        elif leading and seen.leading:
            if appended:
                self._check_right_to_append(broker, partition, seen)
            if partition.high_watermark < seen.high_watermark:
                raise InvariantViolation(
                    "a leader's high watermark never goes back",
                    f"{partition.topic_partition} on broker {broker.id}: from"
                    f" {seen.high_watermark} to {partition.high_watermark}",
                )
        if leading:
            record.lead(partition.leader_epoch, broker.id)
        seen.leader_epoch = partition.leader_epoch
        seen.leading = leading
        seen.high_watermark = partition.high_watermark
        self._check_high_watermark(broker, partition, record)
        if leading and self.on_leader is not None:
            self.on_leader(partition)

    def _check_restart(
        self, life: Life, partition: HostedPartition, record: PartitionRecord
    ) -> None:
        """Check a log that was opened anew: a killed process loses no records and no high watermark
        (R-REP10)."""
        broker, tp = life.broker, partition.topic_partition
        before = record.copies.pop(broker.id, None)
        if before is not None:
            if self._is_same(partition.log, record, before):
                record.copies[broker.id] = before
            elif _is_known(record) and broker.id not in self._lost_power:
                raise InvariantViolation(
                    "a killed process loses nothing of its log",
                    f"{tp} on broker {broker.id} ended at {before.end_offset}, and at"
                    f" {partition.log.log_end_offset} after the restart, or differs",
                )
        # Once: a log that takes another's place later goes on with the high watermark in memory.
        saved = life.saved.pop(tp, {}).get(partition.log.directory.parent, 0)
        saved = min(saved, partition.log.log_end_offset)
        if partition.high_watermark < saved:
            raise InvariantViolation(
                "the high watermark survives a restart",
                f"{tp} on broker {broker.id}: {saved} was saved, it begins with"
                f" {partition.high_watermark}",
            )

    def _follow_log(
        self, broker: SimulatedBroker, partition: HostedPartition, record: PartitionRecord
    ) -> bool:
        """Bring the notes up to the log; return True when something was appended."""
        copy = record.copy(broker.id)
        cut, added = copy.follow(partition.log, record.history())
        if cut:
            self._trace.note(
                f"broker {broker.id} cut {record.partition} to {copy.end_offset}"
                f" from {cut[0].end_offset}"
            )
            record.check_in_sync()
        kept = len(copy.notes) - len(added)
        last_epoch = copy.notes[kept - 1].leader_epoch if kept else -1
        for note in added:
            if note.leader_epoch < last_epoch and _is_known(record):
                raise InvariantViolation(
                    "leader epochs in a log never go back",
                    f"{record.partition} on broker {broker.id} at {note}, after {last_epoch}",
                )
            last_epoch = note.leader_epoch
            record.note_chain(broker.id, note)
        return bool(added)

    def _check_epoch(
        self, broker: SimulatedBroker, partition: HostedPartition, seen: ReplicaSeen
    ) -> None:
        tp = partition.topic_partition
        if partition.leader_epoch < seen.leader_epoch:
            raise InvariantViolation(
                "leader epochs never go back",
                f"{tp} on broker {broker.id}: from {seen.leader_epoch} to {partition.leader_epoch}",
            )
        self._trace.note(
            f"broker {broker.id} {'leads' if partition.leader else 'follows'} {tp}"
            f" epoch {partition.leader_epoch} leader {partition.leader_id}"
            f" end {partition.log.log_end_offset} high watermark {partition.high_watermark}"
        )

    def _check_right_to_append(
        self, broker: SimulatedBroker, partition: HostedPartition, seen: ReplicaSeen
    ) -> None:
        """Check R-REP11: nothing is appended once the session has ended, nor in a later session
        under the epoch of the ended one."""
        session = broker.session.session_id
        if session == seen.session and session in self.sessions.deposed:
            return
        if session not in self._cluster.zookeeper.live or session != seen.session:
            raise InvariantViolation(
                "a leader without its session takes nothing",
                f"{partition.topic_partition}: broker {broker.id} appended in epoch"
                f" {partition.leader_epoch}, after the session in which it was told to lead",
            )

    def _check_high_watermark(
        self, broker: SimulatedBroker, partition: HostedPartition, record: PartitionRecord
    ) -> None:
        high_watermark = partition.high_watermark
        if high_watermark > partition.log.log_end_offset:
            raise InvariantViolation(
                "a high watermark is the end of a batch in the log",
                f"{record.partition} on broker {broker.id}: {high_watermark}, the log ends at"
                f" {partition.log.log_end_offset}",
            )
        if record.unclean or 0 < high_watermark <= partition.log.log_start_offset:
            return
        if high_watermark <= record.committed.end_offset:
            record.check_replica(broker.id, high_watermark)
        elif partition.leader_id == broker.id:
            # Also without a role: its log dir may have failed in the event in which it committed.
            record.commit(broker.id, high_watermark)
        else:
            raise InvariantViolation(
                "a follower's high watermark is not above its leaders'",
                f"{record.partition} on broker {broker.id}: {high_watermark}, committed is up to"
                f" {record.committed.end_offset}",
            )

    def on_zookeeper_write(self, path: str, _old: bytes | None, new: bytes | None) -> None:
        parts = path.split("/")
        if path == ControllerEpochZNode.PATH and new is not None:
            self._check_controller_epoch(int(new))
        elif path.startswith(f"{BrokerIdZNode.PARENT}/") and new is not None:
            self._broker_registered(int(parts[-1]), new)
        elif len(parts) >= 4 and parts[1:3] == ["brokers", "topics"] and parts[3] in self._topics:
            if len(parts) == 4 and new is not None:
                self._topic_written(TopicZNode.decode(parts[3], new))
            elif len(parts) == _STATE_PARTS:
                self._state_written(TopicPartition(parts[3], int(parts[5])), new)

    def _topic_written(self, node: TopicZNode) -> None:
        for partition, replicas in node.assignment.items():
            target = node.target_replicas.get(partition)
            move = None if target is None else (node.original_replicas[partition], target)
            record = self.record(TopicPartition(node.topic, partition))
            if (replicas, move) != (record.assigned, record.move):
                going = "" if move is None else f" from {list(move[0])} to {list(move[1])}"
                self._trace.note(f"zookeeper: {record.partition} on {list(replicas)}{going}")
                record.assign(replicas, move)

    def _broker_registered(self, broker: int, data: bytes) -> None:
        node = self._cluster.zookeeper.nodes[BrokerIdZNode.path(broker)]
        if broker in self._lost_power and self._lives_in(broker, node.owner):
            epoch = BrokerIdZNode.decode(broker, data).tail_lost_epoch
            is_first = epoch == TAIL_LOST_NOW
            if (
                is_first
                and broker in self._registered_since
                and broker not in self._knows_registration
            ):
                # It was killed before it received that registration: it has held nothing since.
                for record in self.records.values():
                    is_durable = self._topics[record.partition.topic].is_durable
                    if broker in record.assigned and not is_durable:
                        record.cut.add(broker)
            self._registered_since[broker] = node.czxid if is_first else epoch

    def _lives_in(self, broker: int, session: int) -> bool:
        """Return True when a session belongs to the broker's present life: a write that was under
        way when the power was lost arrives all the same."""
        lives = (life.broker for life in self._lives.values())
        return any(b.id == broker and b.up and b.session.session_id == session for b in lives)

    def _check_controller_epoch(self, epoch: int) -> None:
        if epoch < self._controller_epoch:
            raise InvariantViolation(
                "controller epochs never go back", f"from {self._controller_epoch} to {epoch}"
            )
        self._controller_epoch = epoch
        self._trace.note(f"controller epoch {epoch}")

    def _state_written(self, tp: TopicPartition, data: bytes | None) -> None:
        record = self.record(tp)
        old = record.state
        if data is None:
            record.state = None
            return
        new = PartitionStateZNode.decode(tp.topic, tp.partition, data)
        record.state = new
        self._trace.note(
            f"zookeeper: {tp} leader {new.leader} epoch {new.leader_epoch} isr {list(new.isr)}"
            f" controller epoch {new.controller_epoch}"
        )
        record.note_isr(new.isr)
        if new.leader != -1:
            record.lead(new.leader_epoch, new.leader)
        record.vouch(self._joined_since(record.cut.intersection(new.isr), new), old, new)
        if old is not None:
            self._check_transition(tp, record, old, new)
        record.check_in_sync()

    def _joined_since(self, members: Iterable[int], state: PartitionStateZNode) -> list[int]:
        """Return the members that joined the ISR after they had lost their power."""
        since = self._registered_since
        return [
            each
            for each in members
            if each in since and state.joined_epochs.get(BrokerId(each), 0) >= since[each]
        ]

    def _check_transition(
        self,
        tp: TopicPartition,
        record: PartitionRecord,
        old: PartitionStateZNode,
        new: PartitionStateZNode,
    ) -> None:
        if new.leader_epoch < old.leader_epoch or new.controller_epoch < old.controller_epoch:
            raise InvariantViolation("epochs in ZooKeeper never go back", f"{tp}: {old}, {new}")
        if new.leader_epoch == old.leader_epoch:
            if new.leader != old.leader:
                raise InvariantViolation(
                    "one leader per epoch", f"{tp}: {old.leader}, then {new.leader}"
                )
            return
        in_sync = new.leader == -1 or new.leader in new.isr
        if not in_sync or not (record.unclean or set(new.isr) <= set(old.isr)):
            raise InvariantViolation(
                "only members of the ISR are elected",
                f"{tp}: leader {new.leader} with ISR {list(new.isr)}, after {list(old.isr)}",
            )

    def check_everything(self) -> None:
        """Read all logs of living brokers again."""
        with self._cluster.seen_whole():
            self._check_everything()

    def _check_everything(self) -> None:
        for life in self._lives.values():
            if not life.broker.serving:
                continue
            for partition in life.broker.replicas:
                if partition.topic_partition.topic in self.unwatched:
                    continue
                record = self.record(partition.topic_partition)
                copy = record.copies.get(life.broker.id)
                if copy is None or not _is_known(record):
                    continue
                found = noted(partition.log, record.history())
                if not (found.holds(copy) and copy.holds(found)):
                    raise InvariantViolation(
                        "a log changes only by appends and cuts",
                        f"{partition.topic_partition} on broker {life.broker.id}",
                    )


def _is_known(record: PartitionRecord) -> bool:
    """Return True when the content of a log before compaction is known."""
    return not (record.is_compacted and record.unclean)
