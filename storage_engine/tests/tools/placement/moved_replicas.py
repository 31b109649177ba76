"""Brokers whose partitions are moved as a controller would: over real sockets, with what happened
in order."""

from collections import Counter, defaultdict, deque
from dataclasses import replace

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
)
from storage_engine.protocol.messages.describe_configs import DescribeConfigsResponse
from storage_engine.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from storage_engine.protocol.messages.elect_leaders import ElectLeadersResponse
from storage_engine.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsResponse,
)
from storage_engine.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
)
from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.tools.placement.progress_line import ProgressLine

CORDONED = "cordoned.log.dirs"
LOG_BYTES = 1 << 20
_DELETE = 1


class Progress(ProgressLine):
    """Keeps every text."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.kept: list[str] = []

    def tell(self, text):
        self.told.append(text)

    def keep(self, text):
        self.kept.append(text)


class MovedReplicas(FakeCluster):
    """A move ends when it has been asked for `turns` times, unless it waits for a dead broker."""

    def __init__(self, brokers: int = 4) -> None:
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self.isr: dict[TopicPartition, tuple[int, ...]] = {}
        self.moves: dict[TopicPartition, tuple[int, ...]] = {}
        self.ends = True
        """Whether moves end."""
        self.turns = 1
        self.cancelled: set[TopicPartition] = set()
        """Moves that are taken back: they end like others."""
        self.refused: dict[TopicPartition, deque[ErrorCode]] = defaultdict(deque)
        """The answers to the next requests to move a partition."""
        self.settings: dict[str, dict[str, str]] = defaultdict(dict)
        """By the name of the broker or topic."""
        self.late: Counter[str] = Counter()
        """How often a broker still tells its settings of before."""
        self.before: dict[str, dict[str, str]] = {}
        self.copied: dict[TopicPartition, int] = {}
        """The bytes that new replicas have, when not all."""
        self.history: list[tuple] = []
        self._looks: Counter[TopicPartition] = Counter()
        super().__init__(brokers)
        self.controller_id = brokers
        """Not the first, which tests take away."""
        self.admin = self._answer

    def place(self, *replicas: tuple[int, ...], topic: str = "t") -> None:
        """A topic with these replicas of partition 0, 1, …, which are all in sync."""
        self.add_topic(topic, [each[0] for each in replicas])
        for number, each in enumerate(replicas):
            tp = TopicPartition(topic, number)
            self.replicas[tp] = self.isr[tp] = each

    def delete(self, topic: str) -> None:
        del self.topics[topic]

    def _topic(self, name):
        told = super()._topic(name)
        return replace(
            told,
            partitions=[
                replace(each, replicas=self._all(tp), isr=self.isr[tp])
                for each in told.partitions
                for tp in [TopicPartition(name, each.partition)]
            ],
        )

    def _all(self, tp):
        return (*self.replicas[tp], *self._added(tp))

    def _added(self, tp):
        return [b for b in self.moves.get(tp, ()) if b not in self.replicas[tp]]

    def _answer(self, broker, api, message):
        return getattr(self, f"_{api}")(broker, message)

    def _AlterPartitionReassignments(self, _broker, message):
        row = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
        wanted = {
            TopicPartition(topic.name, each.partition_index): each.replicas
            for topic in message.topics
            for each in topic.partitions
        }
        self.history.append(("move", {tp: each and tuple(each) for tp, each in wanted.items()}))
        answers = []
        for tp, target in wanted.items():
            code = self.refused[tp].popleft() if self.refused[tp] else self._begin(tp, target)
            partition = row.ReassignablePartitionResponse(
                partition_index=tp.partition, error_code=code
            )
            answers.append(row(name=tp.topic, partitions=[partition]))
        return AlterPartitionReassignmentsResponse(responses=answers)

    def _begin(self, tp, target):
        if tp.topic not in self.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if target is None:
            self.cancelled.add(tp)
        elif any(self.settings[str(b)].get(CORDONED) for b in target if b not in self._all(tp)):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        else:
            self.moves[tp] = tuple(target)
        return ErrorCode.NONE

    def _ListPartitionReassignments(self, _broker, _message):
        for tp in list(self.moves):
            self._looks[tp] += 1
            if tp in self.cancelled:
                if self._looks[tp] >= self.turns:
                    self.cancelled.discard(tp)
                    del self._looks[tp], self.moves[tp]
            elif (
                self.ends and self._looks[tp] >= self.turns and {*self.moves[tp]} <= {*self.servers}
            ):
                del self._looks[tp]
                self.replicas[tp] = self.isr[tp] = self.moves.pop(tp)
                self.history.append(("end", tp))
        row = ListPartitionReassignmentsResponse.OngoingTopicReassignment
        return ListPartitionReassignmentsResponse(
            topics=[
                row(
                    name=tp.topic,
                    partitions=[
                        row.OngoingPartitionReassignment(
                            partition_index=tp.partition,
                            replicas=self._all(tp),
                            adding_replicas=self._added(tp),
                            removing_replicas=[b for b in self.replicas[tp] if b not in target],
                        )
                    ],
                )
                for tp, target in self.moves.items()
            ]
        )

    def _ElectLeaders(self, _broker, message):
        elected = [
            TopicPartition(topic.topic, number)
            for topic in message.topic_partitions
            for number in topic.partitions
        ]
        self.history.append(("elect", elected))
        for tp in elected:
            if tp.topic in self.topics:
                self.move_leader(*tp, self.replicas[tp][0])
        return ElectLeadersResponse()

    def _DescribeConfigs(self, _broker, message):
        name = message.resources[0].resource_name
        values = self.settings[name]
        if self.late[name] > 0:
            self.late[name] -= 1
            values = self.before.get(name, {})
        result = DescribeConfigsResponse.DescribeConfigsResult
        rows = [
            result.DescribeConfigsResourceResult(name=key, value=value, config_source=2)
            for key, value in values.items()
        ]
        return DescribeConfigsResponse(results=[result(resource_name=name, configs=rows)])

    def _IncrementalAlterConfigs(self, _broker, message):
        answers = []
        for resource in message.resources:
            name = resource.resource_name
            self.before[name] = dict(self.settings[name])
            for each in resource.configs:
                if each.config_operation == _DELETE:
                    self.settings[name].pop(each.name, None)
                else:
                    self.settings[name][each.name] = each.value or ""
                value = None if each.config_operation == _DELETE else each.value
                self.history.append(("set", name, each.name, value))
            answers.append(
                IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(resource_name=name)
            )
        return IncrementalAlterConfigsResponse(responses=answers)

    def _DescribeLogDirs(self, broker, _message):
        log_dir = DescribeLogDirsResponse.DescribeLogDirsResult
        row = log_dir.DescribeLogDirsTopic
        partition = row.DescribeLogDirsPartition
        return DescribeLogDirsResponse(
            results=[
                log_dir(
                    log_dir="/data",
                    topics=[
                        row(
                            name=tp.topic,
                            partitions=[
                                partition(
                                    partition_index=tp.partition,
                                    partition_size=self._size(tp, broker),
                                )
                            ],
                        )
                        for tp in self.replicas
                        if tp.topic in self.topics and broker in self._all(tp)
                    ],
                )
            ]
        )

    def _size(self, tp, broker):
        return LOG_BYTES if broker in self.isr[tp] else self.copied.get(tp, 0)


def kinds(cluster: MovedReplicas, *wanted: str) -> list[tuple]:
    """What happened of some kinds, in order."""
    return [each for each in cluster.history if each[0] in wanted]
