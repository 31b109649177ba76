"""All reassignments of a controller, from the request to the end.

The module is level-triggered, as the controller is. Requests are the content of the admin node,
progress is the topics and states in ZooKeeper; the only other memory is which partitions have
retired their old replicas under this controller. A new controller retires them again. The old
replicas go only when every target has been in the ISR and a write of the partition's state has left
the old ones out. Source: R-CTL8; KIP-455 (cancelling, several at once).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from storage_engine.core.control.cluster_state import PartitionAssignment
from storage_engine.core.control.controlled_cluster import (
    ControlledCluster,
    ControlledPartition,
    ControlledTopic,
)
from storage_engine.core.control.controller_events import (
    AssignmentChange,
    DropReassignmentRequests,
    WriteAssignments,
)
from storage_engine.core.control.deliveries import Deliveries
from storage_engine.core.ids import BrokerId, TopicPartition

Target = tuple[BrokerId, ...]


class Reassignments:
    """Requests and progress of reassignments."""

    def __init__(self, cluster: ControlledCluster, deliveries: Deliveries) -> None:
        self._cluster = cluster
        self._deliveries = deliveries
        self._requested: dict[TopicPartition, Target] = {}
        self._retired: list[ControlledPartition] = []
        """Partitions whose `retired` was set; it may have been reset since the last step."""
        self._writing: set[str] = set()
        """Topics whose assignment is being written."""

    # --- events ---

    def request(self, targets: Mapping[TopicPartition, Target]) -> None:
        """Replace all requests by `targets`."""
        self._requested = dict(targets)

    def written(self, topic: str) -> None:
        """Record that the write of a topic's assignment has ended, successfully or not."""
        self._writing.discard(topic)

    def retire(self, partition: ControlledPartition) -> None:
        """Stop counting the old replicas; the live ones are to be deleted.

        A dead one deletes its log when it comes back and finds that it is no replica."""
        assert partition.assignment.reassignment is not None
        partition.retired = True
        self._retired.append(partition)
        for replica in partition.assignment.removing:
            if replica in self._cluster.brokers:
                self._deliveries.stop_replica(replica, partition.name)

    def assignment_changed(
        self, partition: ControlledPartition, former: PartitionAssignment
    ) -> None:
        """Record that the partition has another target, or that its move has ended."""
        partition.retired = False
        for replica in former.removing:
            self._deliveries.cancel_stop(replica, partition.name)

    def broker_gone(self, broker: BrokerId) -> None:
        for partition in self._retired:
            self._deliveries.cancel_stop(broker, partition.name)

    def topic_deleting(self, topic: ControlledTopic) -> None:
        """Forget the moves of a topic that is being deleted."""
        for partition in topic.partitions.values():
            partition.retired = False

    # --- steps that follow ---

    def under_way(self) -> Iterator[tuple[TopicPartition, PartitionAssignment]]:
        """Return every partition that is being reassigned or about to be, with its present and its
        future replicas."""
        for topic in self._cluster.topics.values():
            for number in topic.info.reassignments:
                partition = topic.partitions[number]
                present = partition.assignment
                target = self._requested.get(partition.name)
                if target is not None and not _is_on_the_way(present, target):
                    present = present.towards(target)
                yield partition.name, present
        for name, target in self._requested.items():
            asked = self._cluster.partition(name)
            if asked is None or asked.assignment.reassignment is not None:
                continue
            if asked.assignment.replicas != target:
                yield name, asked.assignment.towards(target)

    def next_effects(self) -> Iterator[DropReassignmentRequests | WriteAssignments]:
        self._retired = [partition for partition in self._retired if partition.retired]
        changes: dict[str, list[AssignmentChange]] = {}
        dropped: dict[TopicPartition, tuple[Target, str | None]] = {}
        for name, target in self._requested.items():
            if self._is_waiting(name.topic):
                continue
            partition = self._cluster.partition(name)
            if partition is None or self._cluster.is_deleting(name.topic):
                dropped[name] = target, "there is no such partition"
            elif name.topic in self._writing:
                # What is known of this partition may be out of date.
                continue
            elif _is_at(partition.assignment, target):
                dropped[name] = target, None
            elif not _is_on_the_way(partition.assignment, target):
                problem = target_problem(
                    target, partition.assignment.replicas, self._cluster.brokers
                )
                if problem is not None:
                    dropped[name] = target, problem
                else:
                    change = _change(partition, partition.assignment.towards(target))
                    changes.setdefault(name.topic, []).append(change)
        for name in dropped:
            del self._requested[name]
        for partition in self._arrived():
            change = _change(partition, partition.assignment.finished())
            changes.setdefault(partition.name.topic, []).append(change)
        for topic, of_topic in changes.items():
            self._writing.add(topic)
            yield WriteAssignments(topic=topic, changes=tuple(of_topic))
        if dropped:
            yield DropReassignmentRequests(requests=dropped)

    def _is_waiting(self, topic: str) -> bool:
        """Return True while a read or write of the topic is under way."""
        cluster = self._cluster
        return topic in cluster.unreadable_topics and topic not in cluster.topics

    def _arrived(self) -> Iterator[ControlledPartition]:
        """Return the partitions that have retired and deleted their old replicas, and that have no
        further target."""
        for partition in self._retired:
            name, move = partition.name, partition.assignment.reassignment
            assert move is not None
            if name.topic in self._writing or self._deliveries.owes_stop(partition):
                continue
            if self._requested.get(name, move.target) == move.target:
                yield partition


def target_problem(
    target: Sequence[BrokerId], present: Collection[BrokerId], live: Collection[BrokerId]
) -> str | None:
    """Return why a partition with the replicas `present` can't be moved to `target`; None when it
    can.

    A broker that holds a replica may be dead; one that is to get its first replica must be
    alive."""
    if not target:
        return "needs at least one broker"
    if len(set(target)) != len(target):
        return f"names a broker twice: {list(target)}"
    absent = [replica for replica in target if replica not in present and replica not in live]
    if absent:
        names = ", ".join(map(str, absent))
        return f"names brokers that are not alive: {names}; alive are {sorted(live)}"
    return None


def _is_at(present: PartitionAssignment, target: Target) -> bool:
    return present.reassignment is None and present.replicas == target


def _is_on_the_way(present: PartitionAssignment, target: Target) -> bool:
    return present.reassignment is not None and present.reassignment.target == target


def _change(partition: ControlledPartition, wanted: PartitionAssignment) -> AssignmentChange:
    number = partition.name.partition
    return AssignmentChange(partition=number, expected=partition.assignment, wanted=wanted)
