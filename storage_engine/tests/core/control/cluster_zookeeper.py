"""The ZooKeeper of a random cluster: what may be written there, and what a write may never do."""

import random
from collections.abc import Callable
from dataclasses import replace

from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState, TopicInfo
from storage_engine.core.control.controller import ELECTIONS_PER_TURN
from storage_engine.core.control.controller_events import (
    AssignmentChange,
    DropReassignmentRequests,
    StateWrite,
    WriteAssignments,
)
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    PartitionEpoch,
    TopicPartition,
)
from storage_engine.core.replication.partition import (
    ProposeIsr,
)
from storage_engine.tests.core.control.cluster_parts import (
    Broker,
    Client,
    ControllerHost,
    ReplicaLog,
)
from storage_engine.tests.core.control.controller_bench import with_assignment

LAG_MS = 100
BROKERS = (1, 2, 3, 4)


class WorldZooKeeper:
    """The state of a random cluster, of which ZooKeeper takes or refuses changes."""

    def __init__(
        self,
        seed: int,
        *,
        unclean: bool = False,
        power: bool = False,
        elections_per_turn: int = ELECTIONS_PER_TURN,
    ) -> None:
        self.random = random.Random(seed)
        self.elections_per_turn = elections_per_turn
        self.power = power
        """Machines may lose their power."""
        self.cut: dict[TopicPartition, set[int]] = {}
        """Brokers whose logs may lack what was acknowledged, until somebody vouches for them."""
        self.elected_with_loss = 0
        self.faults = True
        self.silent: set[int] = set()
        """Brokers that live but fetch nothing any more."""
        self.unclean = unclean
        self.now_ms = 1
        self.numbers = 0
        self.zxid = 100
        self.controller_epoch = 0
        self.states: dict[TopicPartition, PartitionState] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.to_delete: set[str] = set()
        self.targets: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        """The requested reassignments."""
        self.targets_version = 0
        self.moves_done = 0
        self.caught_up: set[TopicPartition] = set()
        """Partitions on the move whose targets have all been in sync."""
        self.registered: dict[BrokerId, BrokerInfo] = {}
        self.isr_changes: list[TopicPartition] = []
        self.brokers = {b: Broker(b) for b in BROKERS}
        self.hosts: list[ControllerHost] = []
        self.leaders_of: dict[tuple[TopicPartition, int], set[int]] = {}
        self.sent: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        """(offset, epoch, number) not acknowledged yet."""
        self.acknowledged: dict[TopicPartition, list[tuple[int, int, int]]] = {}

    def request(self, client: Client, do: Callable[[], object], on_answer) -> None:
        """`on_answer(None)`: the outcome is unknown."""

        def happen() -> None:
            fate = self.random.random() if self.faults else 1.0
            result = None if fate < 0.05 else do()
            answer = None if fate < 0.1 else result
            client.answers.append(lambda: on_answer(answer))

        client.requests.append(happen)

    def write_state(self, write: StateWrite, controller_epoch: int) -> bool:
        known = self.states.get(write.partition)
        version = None if known is None else known.partition_epoch
        if controller_epoch != self.controller_epoch or write.partition.topic not in self.topics:
            return False
        if version != write.expected_partition_epoch:
            return False
        self._check_transition(write.partition, known, write.state)
        self._note_vouched(write.partition, known, write.state)
        self.zxid += 1
        self.states[write.partition] = replace(write.state, written_zxid=self.zxid)
        self._note_caught_up(write.partition)
        return True

    def write_isr(self, tp: TopicPartition, leader: int, epoch: int, propose: ProposeIsr) -> int:
        """The new version, or -1."""
        known = self.states.get(tp)
        if known is None or known.partition_epoch != propose.partition_epoch:
            return -1
        assert (known.leader, known.leader_epoch) == (leader, epoch)
        version = known.partition_epoch + 1
        isr = tuple(BrokerId(r) for r in sorted(propose.isr))
        self.zxid += 1
        self.states[tp] = replace(
            known,
            isr=isr,
            partition_epoch=PartitionEpoch(version),
            written_zxid=self.zxid,
            joined_epochs={BrokerId(b): BrokerEpoch(e) for b, e in propose.joined_epochs.items()},
        )
        self._note_vouched(tp, known, self.states[tp])
        self._note_caught_up(tp)
        self.isr_changes.append(tp)
        return version

    def delete_topic(self, topic: str, controller_epoch: int) -> bool | None:
        if controller_epoch != self.controller_epoch:
            return None
        self.topics.pop(topic, None)
        self.to_delete.discard(topic)
        for tp in [tp for tp in self.states if tp.topic == topic]:
            del self.states[tp]
        return True

    def write_assignments(self, effect: WriteAssignments, controller_epoch: int) -> bool:
        info = self.topics.get(effect.topic)
        if info is None or controller_epoch != self.controller_epoch:
            return False
        if any(info.assigned(c.partition) != c.expected for c in effect.changes):
            return False
        for change in effect.changes:
            self._check_move(TopicPartition(effect.topic, change.partition), change)
            info = with_assignment(info, change.partition, change.wanted)
            self.caught_up.discard(TopicPartition(effect.topic, change.partition))
        self.topics[effect.topic] = info
        for change in effect.changes:
            self._note_caught_up(TopicPartition(effect.topic, change.partition))
        return True

    def _check_move(self, tp: TopicPartition, change: AssignmentChange) -> None:
        """Nobody of the ISR may be dropped, and what is dropped by a live broker is deleted."""
        state = self.states.get(tp)
        if state is not None:
            assert set(state.isr) <= set(change.wanted.replicas), f"{tp}: {state} {change}"
        if change.wanted.reassignment is None:
            self.moves_done += 1
            assert change.expected.reassignment is not None
            assert change.wanted.replicas == change.expected.reassignment.target
            back = change.expected.reassignment.is_cancellation
            assert back or tp in self.caught_up, f"{tp}: {change} before all were in sync"

    def drop_requests(
        self, effect: DropReassignmentRequests, version: int, controller_epoch: int
    ) -> bool:
        if controller_epoch != self.controller_epoch:
            return True
        if version != self.targets_version:
            return False
        for tp, (target, why) in effect.requests.items():
            if self.targets.get(tp) == target:
                del self.targets[tp]
                info = self.topics.get(tp.topic)
                assert why or (info is not None and info.assignment[tp.partition] == target)
        self.targets_version += 1
        return True

    def _note_caught_up(self, tp: TopicPartition) -> None:
        state, info = self.states.get(tp), self.topics.get(tp.topic)
        move = info.reassignments.get(tp.partition) if info is not None else None
        if move is not None and state is not None and set(move.target) <= set(state.isr):
            self.caught_up.add(tp)

    def _check_transition(self, tp, old: PartitionState | None, new: PartitionState) -> None:
        assigned = self.topics[tp.topic].assignment[tp.partition]
        assert new.isr, f"{tp}: the ISR is empty"
        assert set(new.isr) <= set(assigned), f"{tp}: the ISR has others than replicas"
        assert new.leader == -1 or new.leader in new.isr
        if old is not None:
            assert new.leader_epoch > old.leader_epoch
            if not self.unclean:
                assert set(new.isr) <= set(old.isr), f"{tp}: {old} -> {new}"
                assert new.leader == -1 or new.leader in old.isr, f"{tp}: unclean leader"

    def _note_vouched(self, tp, old: PartitionState | None, new: PartitionState) -> None:
        """Decision 4: who may have lost its tail leads only where no other member of the last ISR
        may return; what was acknowledged before and is not in its log is lost then."""
        cut = self.cut.setdefault(tp, set())
        if old is None:
            # Chosen by a controller that had not heard of the loss yet.
            cut.update(
                member
                for member in new.isr
                if self.brokers[member].tail_lost_epoch
                not in range(new.joined_epochs.get(member, 0) + 1)
            )
        vouched = set()
        for member in cut.intersection(new.isr):
            lost_epoch = self.brokers[member].tail_lost_epoch
            if lost_epoch > 0 and new.joined_epochs.get(BrokerId(member), 0) >= lost_epoch:
                vouched.add(member)
        if new.leader in vouched and old is not None and not self.unclean:
            better = set(old.isr) - cut
            assert not better, f"{tp}: {new.leader} lost its tail, {better} did not: {old} {new}"
            self.elected_with_loss += 1
            records = self.brokers[new.leader].logs.get(tp, ReplicaLog()).records
            self.acknowledged[tp] = [
                (offset, epoch, number)
                for offset, epoch, number in self.acknowledged.get(tp, ())
                if records[offset : offset + 1] == [(epoch, number)]
            ]
        cut -= vouched
