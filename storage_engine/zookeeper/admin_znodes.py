"""The znodes by which others ask something of the controller: each owns its path and its JSON.

Rule: a node exists while its request is open; the controller removes it when it is done
(R-CTL10).

Source: the JSON of the design documents (admin), R-CTL6, R-CTL7, R-CTL8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.zookeeper.znode_json import (
    ZnodeFormatError,
    decode_object,
    encode_object,
    int_field,
    int_list,
    object_list,
    required_value,
    str_field,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsZNode:
    """/admin/delete_topics: topics to delete, as JSON in the node and as a child per topic.

    Both forms count.
    """

    PATH: ClassVar[str] = "/admin/delete_topics"

    topics: tuple[str, ...]

    @classmethod
    def topic_path(cls, topic: str) -> str:
        """The child form; its data is empty."""
        return f"{cls.PATH}/{topic}"

    def encode(self) -> bytes:
        return encode_object({"version": 1, "topics": list(self.topics)})

    @classmethod
    def decode(cls, data: bytes) -> "DeleteTopicsZNode":
        """Of the node's own data; empty data (the parent of children) names no topic."""
        if not data.strip():
            return cls(topics=())
        topics = required_value(cls.PATH, decode_object(cls.PATH, data), "topics")
        if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
            raise ZnodeFormatError(f"znode {cls.PATH}: 'topics' must be a list of strings")
        return cls(topics=tuple(dict.fromkeys(topics)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredReplicaElectionZNode:
    """/admin/preferred_replica_election: partitions whose preferred replica shall lead."""

    PATH: ClassVar[str] = "/admin/preferred_replica_election"

    partitions: tuple[TopicPartition, ...]

    def encode(self) -> bytes:
        return _encode_partitions(self.partitions)

    @classmethod
    def decode(cls, data: bytes) -> "PreferredReplicaElectionZNode":
        return cls(partitions=_decode_partitions(cls.PATH, data))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignPartitionsZNode:
    """/admin/reassign_partitions: the replicas that partitions shall have."""

    PATH: ClassVar[str] = "/admin/reassign_partitions"

    target_replicas: Mapping[TopicPartition, tuple[BrokerId, ...]]
    problems: tuple[str, ...] = ()
    """What is wrong with the entries that can't be read; of those there is nothing else here."""

    def encode(self) -> bytes:
        return encode_object(
            {
                "version": 1,
                "partitions": [
                    {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
                    for tp, replicas in self.target_replicas.items()
                ],
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> "ReassignPartitionsZNode":
        """An entry that can't be read keeps no other from being carried out. ZnodeFormatError when
        there are no entries at all to be found."""
        targets: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        problems: list[str] = []
        items = required_value(cls.PATH, decode_object(cls.PATH, data), "partitions")
        if not isinstance(items, list):
            raise ZnodeFormatError(f"znode {cls.PATH}: 'partitions' must be a list of objects")
        for item in items:
            try:
                tp, replicas = cls._entry(item)
            except ZnodeFormatError as failure:
                problems.append(str(failure))
                continue
            if tp in targets:
                problems.append(f"znode {cls.PATH} names {tp} twice: the first counts")
            else:
                targets[tp] = replicas
        return cls(target_replicas=targets, problems=tuple(problems))

    @classmethod
    def _entry(cls, item: object) -> tuple[TopicPartition, tuple[BrokerId, ...]]:
        if not isinstance(item, dict):
            raise ZnodeFormatError(f"znode {cls.PATH}: 'partitions' must be a list of objects")
        tp = TopicPartition(
            str_field(cls.PATH, item, "topic"), int_field(cls.PATH, item, "partition")
        )
        replicas = int_list(cls.PATH, "replicas", required_value(cls.PATH, item, "replicas"))
        if not replicas or len(set(replicas)) != len(replicas):
            raise ZnodeFormatError(f"znode {cls.PATH}: {tp} needs one or more brokers, each once")
        return tp, tuple(BrokerId(broker) for broker in replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChangeZNode:
    """/isr_change_notification/isr_change_<n>, sequential: a leader has changed these ISRs."""

    PARENT: ClassVar[str] = "/isr_change_notification"
    PREFIX: ClassVar[str] = "/isr_change_notification/isr_change_"
    """ZooKeeper appends the number."""

    partitions: tuple[TopicPartition, ...]

    @classmethod
    def path(cls, child: str) -> str:
        return f"{cls.PARENT}/{child}"

    def encode(self) -> bytes:
        return _encode_partitions(self.partitions)

    @classmethod
    def decode(cls, child: str, data: bytes) -> "IsrChangeZNode":
        return cls(partitions=_decode_partitions(cls.path(child), data))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirEventZNode:
    """/log_dir_event_notification/log_dir_event_<n>, sequential: replicas of a broker failed
    (KIP-112)."""

    PARENT: ClassVar[str] = "/log_dir_event_notification"
    PREFIX: ClassVar[str] = "/log_dir_event_notification/log_dir_event_"
    FAILURE: ClassVar[int] = 1
    """The only event there is."""

    broker_id: BrokerId

    @classmethod
    def path(cls, child: str) -> str:
        return f"{cls.PARENT}/{child}"

    def encode(self) -> bytes:
        return encode_object({"version": 1, "broker": self.broker_id, "event": self.FAILURE})

    @classmethod
    def decode(cls, child: str, data: bytes) -> "LogDirEventZNode":
        path = cls.path(child)
        return cls(broker_id=BrokerId(int_field(path, decode_object(path, data), "broker")))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigChangeZNode:
    """/config/changes/config_change_<n>, sequential: a ConfigZNode has changed."""

    PARENT: ClassVar[str] = "/config/changes"
    PREFIX: ClassVar[str] = "/config/changes/config_change_"

    entity_path: str
    """`topics/<topic>` or `brokers/<id>`."""

    @classmethod
    def path(cls, child: str) -> str:
        return f"{cls.PARENT}/{child}"

    def encode(self) -> bytes:
        return encode_object({"version": 2, "entity_path": self.entity_path})

    @classmethod
    def decode(cls, child: str, data: bytes) -> "ConfigChangeZNode":
        path = cls.path(child)
        return cls(entity_path=str_field(path, decode_object(path, data), "entity_path"))


def _encode_partitions(partitions: tuple[TopicPartition, ...]) -> bytes:
    return encode_object(
        {
            "version": 1,
            "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in partitions],
        }
    )


def _decode_partitions(path: str, data: bytes) -> tuple[TopicPartition, ...]:
    items = object_list(path, decode_object(path, data), "partitions")
    return tuple(
        dict.fromkeys(
            TopicPartition(str_field(path, item, "topic"), int_field(path, item, "partition"))
            for item in items
        )
    )
