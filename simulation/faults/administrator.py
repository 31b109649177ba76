"""An administrator, who asks a cluster in trouble to create, grow and delete topics, to move
replicas, and to elect preferred leaders.

Requests go to the controller only; one that is impossible now is dropped.
"""

import random
from collections.abc import Sequence

from simulation.faults.faults import Fault, FaultKind
from simulation.shared import Run
from simulation.world.requests import create_topic_request
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import create_partitions, create_topics

GROWN_PARTITIONS = 4
"""The most partitions that are requested."""

WISHES = (
    FaultKind.CREATE_TOPIC,
    FaultKind.DELETE_TOPIC,
    FaultKind.GROW_TOPIC,
    FaultKind.ELECT_PREFERRED,
    FaultKind.REASSIGN,
    FaultKind.CANCEL_REASSIGNMENT,
)


class Administrator:
    """The administrator of one run."""

    def __init__(self, run: Run, growing_topic: str, partitions: Sequence[TopicPartition]) -> None:
        """`partitions`: the partitions for elections and reassignments."""
        self._cluster = run.cluster
        self._checker = run.checker
        self._trace = run.trace
        self._growing_topic = growing_topic
        self._about = partitions
        self._topics: list[str] = []
        """The topics that it has created and not deleted."""
        self._partitions = 1

    def request(self, fault: Fault) -> bool:
        """Make the request of a fault; return False when it is impossible now."""
        controller = self._cluster.controller
        if controller is None:
            return False
        match fault.kind:
            case FaultKind.CREATE_TOPIC:
                self.create_topic(f"x{fault.number}", 1 + fault.seed % 2)
            case FaultKind.DELETE_TOPIC:
                if not self._topics:
                    return False
                self._cluster.delete_topic(self._topics.pop(fault.seed % len(self._topics)))
            case FaultKind.GROW_TOPIC:
                if self._partitions == GROWN_PARTITIONS:
                    return False
                self._partitions += 1
                self._grow()
            case FaultKind.ELECT_PREFERRED:
                self._cluster.elect_preferred(self._about[fault.seed % len(self._about)])
            case _:
                self._reassign(fault)
        return True

    def create_topic(self, name: str, partitions: int) -> None:
        controller = self._cluster.controller
        if controller is not None:
            self._checker.expect_topic(name, unclean=False, min_in_sync=1)
            self._topics.append(name)
            request = create_topic_request(name, partitions, {})
            self._cluster.ask(controller.id, create_topics.API, 5, request)

    def _grow(self) -> None:
        request = create_partitions.CreatePartitionsRequest
        topic = request.CreatePartitionsTopic(
            name=self._growing_topic, count=self._partitions, assignments=None
        )
        growth = request(topics=[topic], timeout_ms=10_000, validate_only=False)
        self._cluster.ask_controller(create_partitions.API, 1, growth)

    def _reassign(self, fault: Fault) -> None:
        choose = random.Random(fault.seed)
        tp = choose.choice(self._about)
        if fault.kind is FaultKind.CANCEL_REASSIGNMENT:
            target = None
        else:
            brokers = [broker.id for broker in self._cluster.brokers]
            target = choose.sample(brokers, choose.choice((2, 3, 3)))
        self._trace.note(f"{tp} is to go to {target or 'where it was'}")
        self._cluster.reassign(tp, target)
