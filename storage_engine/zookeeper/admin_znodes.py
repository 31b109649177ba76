"""The znodes of requests to the controller: each class owns a path and its JSON.

A node exists while its request is open; the controller removes it when it is done (R-CTL10).

Source: the JSON of the design documents (admin), R-CTL6, R-CTL7, R-CTL8.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.zookeeper.znode_json import (
    BROKER_IDS,
    PARTITIONS,
    Fields,
    JsonValue,
    ZnodeFormatError,
    broker_ids,
    decode_object,
    encode_object,
    entries,
    int_field,
    legal_topic,
    reported,
    required_value,
    str_field,
    text,
    topic_field,
)

Entry = TypeVar("Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopicsZNode:
    """/admin/delete_topics: topics to delete, as JSON in the node and as a child per topic.

    Both forms count.
    """

    PATH: ClassVar[str] = "/admin/delete_topics"

    topics: tuple[str, ...]
    problems: tuple[str, ...] = ()
    """The problems of the entries that can't be decoded; these entries are left out."""

    @classmethod
    def topic_path(cls, topic: str) -> str:
        """The child form; its data is empty."""
        return f"{cls.PATH}/{topic}"

    def encode(self) -> bytes:
        return encode_object({"version": 1, "topics": list(self.topics)})

    @classmethod
    def decode(cls, data: bytes) -> "DeleteTopicsZNode":
        """Decode the node's own data; empty data (the parent of children) names no topic."""
        if not data.strip():
            return cls(topics=())
        topics, problems = _readable(cls.PATH, data, "topics", cls._entry)
        return cls(topics=topics, problems=problems)

    @classmethod
    def _entry(cls, item: JsonValue) -> str:
        return legal_topic(cls.PATH, text(cls.PATH, "topics", item))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Partitions:
    """A list of partitions, as two of the nodes have it."""

    partitions: tuple[TopicPartition, ...]
    problems: tuple[str, ...] = ()
    """The problems of the entries that can't be decoded; these entries are left out."""

    def encode(self) -> bytes:
        named: list[Fields] = [
            {"topic": tp.topic, "partition": tp.partition} for tp in self.partitions
        ]
        return encode_object({"version": 1, "partitions": named})


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferredReplicaElectionZNode(_Partitions):
    """/admin/preferred_replica_election: partitions whose preferred replica shall lead."""

    PATH: ClassVar[str] = "/admin/preferred_replica_election"

    @classmethod
    def decode(cls, data: bytes) -> "PreferredReplicaElectionZNode":
        partitions, problems = _decode_partitions(cls.PATH, data)
        return cls(partitions=partitions, problems=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReassignPartitionsZNode:
    """/admin/reassign_partitions: the future replicas of partitions."""

    PATH: ClassVar[str] = "/admin/reassign_partitions"

    target_replicas: Mapping[TopicPartition, tuple[BrokerId, ...]]
    problems: tuple[str, ...] = ()
    """The problems of the entries that can't be decoded; these entries are left out."""

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
        """Decode the entries; those that can't be decoded don't affect the others. ZnodeFormatError
        when no entries can be found at all."""
        targets: dict[TopicPartition, tuple[BrokerId, ...]] = {}
        problems: list[str] = []
        for item in entries(cls.PATH, decode_object(cls.PATH, data), "partitions"):
            try:
                tp, replicas = cls._entry(item)
            except ZnodeFormatError as failure:
                problems.append(str(failure))
                continue
            if tp in targets:
                problems.append(f"znode {cls.PATH} names {tp} twice: the first counts")
            else:
                targets[tp] = replicas
        return cls(target_replicas=targets, problems=reported(problems))

    @classmethod
    def _entry(cls, item: JsonValue) -> tuple[TopicPartition, tuple[BrokerId, ...]]:
        tp, fields = _partition(cls.PATH, item)
        replicas = broker_ids(
            cls.PATH, f"replicas of {tp}", required_value(cls.PATH, fields, "replicas")
        )
        if not replicas:
            raise ZnodeFormatError(f"znode {cls.PATH}: {tp} needs one or more brokers")
        return tp, tuple(BrokerId(broker) for broker in replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrChangeZNode(_Partitions):
    """/isr_change_notification/isr_change_<n>, sequential: a leader has changed these ISRs."""

    PARENT: ClassVar[str] = "/isr_change_notification"
    PREFIX: ClassVar[str] = "/isr_change_notification/isr_change_"
    """The path to which ZooKeeper appends the number."""

    @classmethod
    def path(cls, child: str) -> str:
        return f"{cls.PARENT}/{child}"

    @classmethod
    def decode(cls, child: str, data: bytes) -> "IsrChangeZNode":
        partitions, problems = _decode_partitions(cls.path(child), data)
        return cls(partitions=partitions, problems=problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirEventZNode:
    """/log_dir_event_notification/log_dir_event_<n>, sequential: replicas of a broker have failed
    (KIP-112)."""

    PARENT: ClassVar[str] = "/log_dir_event_notification"
    PREFIX: ClassVar[str] = "/log_dir_event_notification/log_dir_event_"
    FAILURE: ClassVar[int] = 1
    """The only kind of event."""

    broker_id: BrokerId

    @classmethod
    def path(cls, child: str) -> str:
        return f"{cls.PARENT}/{child}"

    def encode(self) -> bytes:
        return encode_object({"version": 1, "broker": self.broker_id, "event": self.FAILURE})

    @classmethod
    def decode(cls, child: str, data: bytes) -> "LogDirEventZNode":
        path = cls.path(child)
        return cls(
            broker_id=BrokerId(int_field(path, decode_object(path, data), "broker", BROKER_IDS))
        )


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


def _decode_partitions(
    path: str, data: bytes
) -> tuple[tuple[TopicPartition, ...], tuple[str, ...]]:
    return _readable(path, data, "partitions", lambda item: _partition(path, item)[0])


def _partition(path: str, item: JsonValue) -> tuple[TopicPartition, Fields]:
    """Return the partition of an entry of 'partitions', and all its fields."""
    if not isinstance(item, dict):
        raise ZnodeFormatError(f"znode {path}: 'partitions' must be a list of objects")
    partition = int_field(path, item, "partition", PARTITIONS)
    return TopicPartition(topic_field(path, item, "topic"), partition), item


def _readable(
    path: str, data: bytes, key: str, read: Callable[[JsonValue], Entry]
) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
    """Return the entries of a list, each once, and the problems of those that can't be decoded."""
    found: dict[Entry, None] = {}
    problems: list[str] = []
    for item in entries(path, decode_object(path, data), key):
        try:
            found[read(item)] = None
        except ZnodeFormatError as failure:
            problems.append(str(failure))
    return tuple(found), reported(problems)
