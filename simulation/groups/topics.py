"""The topics that the group reads: some stay and grow, others are created, deleted and made anew
under the same name, as an administrator asks for it meanwhile. No records are in them, so that one
replica is enough.
"""

from collections.abc import Mapping
from uuid import UUID

from simulation.shared import Run
from simulation.world.requests import create_topic_request
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages import create_partitions, create_topics, delete_topics
from storage_engine.zookeeper.znodes.topic_znodes import TopicZNode

LASTING = ("ga", "gb")
PASSING = ("gx", "gy")
"""Topics that are deleted and made anew."""
PATTERN = "g[a-x]"
"""A regular expression that matches all of them but one."""
MATCHED = ("ga", "gb", "gx")
FIRST_PARTITIONS = 2
MOST_PARTITIONS = 4
PAUSE_MS = (300, 2000)
ANSWER_MS = 10_000


class GroupTopics:
    """The topics of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._choose = run.chooser("topics of groups")
        self.over = False
        """True when nothing is changed any more."""
        self._names: dict[UUID, str] = {}
        run.checker.unwatched.update((*LASTING, *PASSING))

    def create(self) -> None:
        cluster = self._run.cluster
        for name in LASTING:
            request = _creation(name, FIRST_PARTITIONS)
            cluster.answer(cluster.ask_controller(create_topics.API, 5, request))
            self._names[cluster.topic_id(name)] = name

    def run(self) -> None:
        """Ask for a change after a while, again and again."""
        self._run.cluster.loop.call_later(self._choose.randint(*PAUSE_MS), self._change)

    def lasting(self, topic_id: UUID) -> str | None:
        """Return the name of a topic that is never deleted."""
        return self._names.get(topic_id)

    def sizes(self) -> Mapping[str, tuple[UUID, int]]:
        """Return the id and the number of partitions of each topic that exists now."""
        found: dict[str, tuple[UUID, int]] = {}
        for name in (*LASTING, *PASSING):
            data = self._run.cluster.zookeeper.data(TopicZNode.path(name))
            if data is not None:
                node = TopicZNode.decode(name, data)
                assert node.topic_id is not None, "brokers give each topic one"
                found[name] = node.topic_id, len(node.assignment)
        return found

    def partitions(self, name: str) -> list[TopicPartition]:
        known = self.sizes().get(name)
        return [] if known is None else [TopicPartition(name, n) for n in range(known[1])]

    def _change(self) -> None:
        if self.over:
            return
        self.run()
        controller = self._run.cluster.controller
        if controller is None:
            return
        name, sizes = self._choose.choice((*LASTING, *PASSING, *PASSING)), self.sizes()
        cluster, known = self._run.cluster, sizes.get(name)
        if known is None:
            request = _creation(name, self._choose.randint(1, FIRST_PARTITIONS))
            cluster.ask(controller.id, create_topics.API, 5, request)
        elif name in PASSING:
            gone = delete_topics.DeleteTopicsRequest(topic_names=[name], timeout_ms=ANSWER_MS)
            cluster.ask(controller.id, delete_topics.API, 4, gone)
        elif known[1] < MOST_PARTITIONS:
            topic = create_partitions.CreatePartitionsRequest.CreatePartitionsTopic(
                name=name, count=known[1] + 1, assignments=None
            )
            growth = create_partitions.CreatePartitionsRequest(
                topics=[topic], timeout_ms=ANSWER_MS, validate_only=False
            )
            cluster.ask(controller.id, create_partitions.API, 1, growth)
        self._run.trace.note(f"topic {name} changes, it was {known}")


def _creation(name: str, partitions: int) -> create_topics.CreateTopicsRequest:
    request = create_topic_request(name, partitions, {})
    request.topics[0].replication_factor = 1
    return request
