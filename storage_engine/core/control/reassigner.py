"""All reassignments of a controller: from the request to the end, whatever happens in between.

Rule: level-triggered, as the controller is. Requests are the content of the admin node, progress is
what ZooKeeper says of topics and states; the only thing remembered beside these is which partitions
have retired their old replicas under this controller. A new controller retires them again. Source:
R-CTL8; document 001 (reassignment of partitions).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from storage_engine.core.control.cluster_state import BrokerInfo, TopicInfo
from storage_engine.core.control.controller_events import (
    AssignmentChange,
    DropReassignmentRequests,
    WriteAssignments,
)
from storage_engine.core.control.deliveries import Deliveries
from storage_engine.core.control.reassignment import Assigned, Reassignment, target_problem
from storage_engine.core.ids import BrokerId, TopicPartition

Target = tuple[BrokerId, ...]


@dataclass(slots=True)
class Reassigner:
    """Requests and progress of reassignments."""

    _requested: dict[TopicPartition, Target] = field(default_factory=dict)
    _retired: dict[TopicPartition, Reassignment] = field(default_factory=dict)
    """Partitions whose old replicas count no more: an accepted write has left them out."""
    _writing: set[str] = field(default_factory=set)
    """Topics whose assignment is being written."""

    # --- what events change ---

    def request(self, targets: Mapping[TopicPartition, Target]) -> None:
        """All that is asked for now."""
        self._requested = dict(targets)

    def written(self, topic: str) -> None:
        """The write of a topic's assignment is over, well or not."""
        self._writing.discard(topic)

    def retire(
        self,
        partition: TopicPartition,
        assigned: Assigned,
        brokers: Mapping[BrokerId, BrokerInfo],
        deliveries: Deliveries,
    ) -> None:
        """Steps 8 and 9: from here on the old replicas are none; those that live are to be deleted.

        A dead one deletes what it holds when it comes back and finds that it is no replica.
        """
        assert assigned.reassignment is not None
        self._retired[partition] = assigned.reassignment
        for replica in assigned.removing:
            if replica in brokers:
                deliveries.stop_replica(replica, partition)

    def assignment_changed(
        self, partition: TopicPartition, old: Assigned | None, deliveries: Deliveries
    ) -> None:
        """What is on the move goes elsewhere, or has arrived."""
        self._retired.pop(partition, None)
        if old is not None:
            for replica in old.removing:
                deliveries.cancel_stop(replica, partition)

    def broker_gone(self, broker: BrokerId, deliveries: Deliveries) -> None:
        for partition in self._retired:
            deliveries.cancel_stop(broker, partition)

    def forget_topic(self, topic: str) -> None:
        """The topic is being deleted: its partitions go nowhere any more."""
        for partition in [tp for tp in self._retired if tp.topic == topic]:
            del self._retired[partition]

    # --- what follows from it ---

    def replicas(self, partition: TopicPartition, info: TopicInfo) -> tuple[BrokerId, ...] | None:
        """The replicas that count; None: no such partition."""
        retired = self._retired.get(partition)
        return info.assignment.get(partition.partition) if retired is None else retired.target

    def retired_to(self, partition: TopicPartition) -> tuple[BrokerId, ...] | None:
        """The only replicas of a partition that has retired the others."""
        retired = self._retired.get(partition)
        return None if retired is None else retired.target

    def unfinished(self, partition: TopicPartition, info: TopicInfo) -> Reassignment | None:
        """The move of a partition, as long as its old replicas count."""
        if partition in self._retired:
            return None
        return info.reassignments.get(partition.partition)

    def under_way(
        self, topics: Mapping[str, TopicInfo]
    ) -> Iterator[tuple[TopicPartition, Assigned]]:
        """Every partition that is on the move, or about to."""
        for topic, info in topics.items():
            for number in info.reassignments:
                partition = TopicPartition(topic, number)
                present = info.assigned(number)
                assert present is not None
                target = self._requested.get(partition)
                if target is not None and target != info.reassignments[number].target:
                    present = present.towards(target)
                yield partition, present
        for partition, target in self._requested.items():
            info_of = topics.get(partition.topic)
            present = info_of.assigned(partition.partition) if info_of is not None else None
            if present is None or present.reassignment is not None or present.replicas == target:
                continue
            yield partition, present.towards(target)

    def effects(
        self,
        topics: Mapping[str, TopicInfo],
        brokers: Mapping[BrokerId, BrokerInfo],
        deleting: set[str],
        unreadable: set[str],
        owes_stop: Callable[[TopicPartition], bool],
    ) -> Iterator[DropReassignmentRequests | WriteAssignments]:
        """`unreadable`: topics that are there, though nobody can tell what they are. `owes_stop`:
        whether a live broker has still to delete its replica of a partition."""
        changes: dict[str, list[AssignmentChange]] = {}
        over: dict[TopicPartition, tuple[Target, str | None]] = {}
        unknown = unreadable - topics.keys()
        asked = [each for each in self._requested.items() if each[0].topic not in unknown]
        for partition, target in asked:
            info = None if partition.topic in deleting else topics.get(partition.topic)
            present = None if info is None else info.assigned(partition.partition)
            if present is None:
                over[partition] = target, "there is no such partition"
            elif partition.topic in self._writing:
                # What is known of it may be true no more.
                continue
            elif _is_at(present, target):
                over[partition] = target, None
            elif not _is_on_the_way(present, target):
                problem = target_problem(target, present.replicas, brokers)
                if problem is not None:
                    over[partition] = target, problem
                else:
                    change = _change(partition, present, present.towards(target))
                    changes.setdefault(partition.topic, []).append(change)
        for partition in over:
            del self._requested[partition]
        for partition, present in self._arrived(topics, deleting):
            if not owes_stop(partition):
                change = _change(partition, present, present.finished())
                changes.setdefault(partition.topic, []).append(change)
        for topic, of_topic in changes.items():
            self._writing.add(topic)
            yield WriteAssignments(topic=topic, changes=tuple(of_topic))
        if over:
            yield DropReassignmentRequests(requests=over)

    def _arrived(
        self, topics: Mapping[str, TopicInfo], deleting: set[str]
    ) -> Iterator[tuple[TopicPartition, Assigned]]:
        """Partitions that have retired their old replicas, and are not to go elsewhere now."""
        for partition, move in self._retired.items():
            topic = partition.topic
            if topic in deleting or topic in self._writing:
                continue
            if self._requested.get(partition, move.target) == move.target:
                present = topics[topic].assigned(partition.partition)
                assert present is not None
                yield partition, present


def _is_at(present: Assigned, target: Target) -> bool:
    return present.reassignment is None and present.replicas == target


def _is_on_the_way(present: Assigned, target: Target) -> bool:
    return present.reassignment is not None and present.reassignment.target == target


def _change(partition: TopicPartition, present: Assigned, wanted: Assigned) -> AssignmentChange:
    return AssignmentChange(partition=partition.partition, expected=present, wanted=wanted)
