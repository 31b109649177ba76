"""All reassignments of a controller: from the request to the end, whatever happens in between.

Rule: level-triggered, as the controller is. Requests are the content of the admin node, progress is
what ZooKeeper says of topics and states; the only thing remembered beside these is which partitions
have retired their old replicas under this controller. A new controller retires them again. The old
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
        """Partitions whose `retired` is set; it may be unset since the last step."""
        self._writing: set[str] = set()
        """Topics whose assignment is being written."""

    # --- what events change ---

    def request(self, targets: Mapping[TopicPartition, Target]) -> None:
        """All that is asked for now."""
        self._requested = dict(targets)

    def written(self, topic: str) -> None:
        """The write of a topic's assignment is over, well or not."""
        self._writing.discard(topic)

    def retire(self, partition: ControlledPartition) -> None:
        """From here on the old replicas are none; those that live are to be deleted.

        A dead one deletes what it holds when it comes back and finds that it is no replica.
        """
        assert partition.assignment.reassignment is not None
        partition.retired = True
        self._retired.append(partition)
        for replica in partition.assignment.removing:
            if replica in self._cluster.brokers:
                self._deliveries.stop_replica(replica, partition.name)

    def assignment_changed(
        self, partition: ControlledPartition, former: PartitionAssignment
    ) -> None:
        """The partition goes elsewhere than it did, or has arrived."""
        partition.retired = False
        for replica in former.removing:
            self._deliveries.cancel_stop(replica, partition.name)

    def broker_gone(self, broker: BrokerId) -> None:
        for partition in self._retired:
            self._deliveries.cancel_stop(broker, partition.name)

    def topic_deleting(self, topic: ControlledTopic) -> None:
        """Its partitions go nowhere any more."""
        for partition in topic.partitions.values():
            partition.retired = False

    # --- what follows from it ---

    def under_way(self) -> Iterator[tuple[TopicPartition, PartitionAssignment]]:
        """Every partition that is being reassigned, or about to, with what it has and will have."""
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
                # What is known of it may be true no more.
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
        """Whether it will be known later what is there."""
        cluster = self._cluster
        return topic in cluster.unreadable_topics and topic not in cluster.topics

    def _arrived(self) -> Iterator[ControlledPartition]:
        """Partitions that have retired their old replicas, which are deleted by now, and that are
        not to go elsewhere."""
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
    """Why a partition with the replicas `present` can't be moved to `target`; None: it can.

    A broker that holds a replica may be dead, one that shall get its first must live.
    """
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
