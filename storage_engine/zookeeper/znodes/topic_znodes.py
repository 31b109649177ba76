"""The znodes of a topic: its assignment, its id, and the states of its partitions. Each class owns
a path and its JSON.

The keys are those that Kafka documents. Further keys are written only for values without one there:
a topic's id, a reassignment under way, the incarnations in a partition's state. Unknown keys are
ignored. Source: R-CTL10, and the JSON of the design documents (HA related ZooKeeper structure).
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    topic_id_from_text,
    topic_id_to_text,
)
from storage_engine.zookeeper.znode_json import (
    BROKER_EPOCHS,
    BROKER_IDS,
    EPOCHS,
    LEADERS,
    PARTITIONS,
    Fields,
    JsonValue,
    ZnodeFormatError,
    broker_ids,
    decode_object,
    encode_object,
    int_field,
    legal_topic,
    number_named,
    required_value,
    str_field,
)
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode, ConfigZNode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicZNode:
    """/brokers/topics/<topic>: the replicas of every partition, the preferred one first."""

    PARENT: ClassVar[str] = "/brokers/topics"

    topic: str
    assignment: Mapping[int, tuple[BrokerId, ...]]
    """Partition id -> brokers; every broker at most once."""
    topic_id: uuid.UUID | None = None
    """None when the node was written by a program without topic ids."""
    original_replicas: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    """For partitions that are being reassigned, the replicas before the move (R-CTL8)."""
    target_replicas: Mapping[int, tuple[BrokerId, ...]] = field(default_factory=dict)
    """For the same partitions, the replicas after it."""

    @classmethod
    def path(cls, topic: str) -> str:
        return f"{cls.PARENT}/{topic}"

    def encode(self) -> bytes:
        fields: dict[str, JsonValue] = {
            "version": 1,
            "partitions": _replicas_to_json(self.assignment),
        }
        if self.target_replicas:
            fields["original_replicas"] = _replicas_to_json(self.original_replicas)
            fields["target_replicas"] = _replicas_to_json(self.target_replicas)
        if self.topic_id is not None:
            fields["topic_id"] = topic_id_to_text(self.topic_id)
        return encode_object(fields)

    @classmethod
    def decode(cls, topic: str, data: bytes) -> "TopicZNode":
        path = cls.path(legal_topic(cls.PARENT, topic))
        fields = decode_object(path, data)
        assignment = _replicas_of(path, fields, "partitions")
        original = _replicas_of(path, fields, "original_replicas", optional=True)
        target = _replicas_of(path, fields, "target_replicas", optional=True)
        if original.keys() != target.keys() or not target.keys() <= assignment.keys():
            raise ZnodeFormatError(
                f"znode {path}: 'original_replicas' and 'target_replicas' must name the same "
                "partitions of the topic"
            )
        text_id = str_field(path, fields, "topic_id") if fields.get("topic_id") else None
        topic_id = _topic_id(path, text_id) if text_id else None
        return cls(
            topic=topic,
            assignment=assignment,
            # In the protocol an id of zeros means none.
            topic_id=topic_id if topic_id is not None and topic_id.int else None,
            original_replicas=original,
            target_replicas=target,
        )


def _replicas_to_json(replicas: Mapping[int, tuple[BrokerId, ...]]) -> dict[str, list[BrokerId]]:
    return {str(partition): list(replicas[partition]) for partition in sorted(replicas)}


def _replicas_of(
    path: str, fields: Fields, key: str, *, optional: bool = False
) -> dict[int, tuple[BrokerId, ...]]:
    """Return partition id -> brokers, from an object whose keys are partition ids."""
    if optional and key not in fields:
        return {}
    partitions = required_value(path, fields, key)
    if not isinstance(partitions, dict):
        raise ZnodeFormatError(f"znode {path}: '{key}' must be an object")
    found: dict[int, tuple[BrokerId, ...]] = {}
    for name, value in partitions.items():
        partition = number_named(name, PARTITIONS)
        if partition is None:
            raise ZnodeFormatError(f"znode {path}: '{name[:40]}' is not a partition id")
        replicas = broker_ids(path, f"{key}.{name}", value)
        if not replicas:
            raise ZnodeFormatError(f"znode {path}: partition {name} needs one or more brokers")
        found[partition] = tuple(BrokerId(broker) for broker in replicas)
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsZNode:
    """/brokers/topics/<topic>/partitions: parent of the partitions. It keeps the topic's id, in
    case the topic's node is written without it; a node that others created has no data."""

    topic_id: uuid.UUID
    topic_czxid: int
    """The transaction that created the topic's node: the id belongs to that node alone."""
    is_doubted: bool = False
    """True when the topic's node has named another id: this one counts only while both are the
    same."""

    @staticmethod
    def path(topic: str) -> str:
        return f"{TopicZNode.path(topic)}/partitions"

    def encode(self) -> bytes:
        fields: dict[str, JsonValue] = {
            "version": 1,
            "topic_id": topic_id_to_text(self.topic_id),
            "topic_czxid": self.topic_czxid,
        }
        if self.is_doubted:
            fields["doubted"] = True
        return encode_object(fields)

    @classmethod
    def decode(cls, topic: str, data: bytes) -> "PartitionsZNode":
        path = cls.path(topic)
        fields = decode_object(path, data)
        return cls(
            topic_id=_topic_id(path, str_field(path, fields, "topic_id")),
            topic_czxid=int_field(path, fields, "topic_czxid", BROKER_EPOCHS),
            is_doubted=bool(fields.get("doubted")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStateZNode:
    """/brokers/topics/<topic>/partitions/<p>/state: leader and ISR.

    Written only with an unchanged znode version.
    """

    leader: BrokerId
    """-1 when there is none."""
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    """Never empty once written by us: without a live member the last ISR is kept (R-CTL2)."""
    controller_epoch: ControllerEpoch
    """The epoch of the controller that last updated the state."""
    joined_epochs: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """The incarnation with which each member was last seen to hold what is committed, see
    `core.control.partition_elections`; a state that others wrote may have none."""

    @staticmethod
    def partition_path(topic: str, partition: int) -> str:
        return f"{PartitionsZNode.path(topic)}/{partition}"

    @classmethod
    def path(cls, topic: str, partition: int) -> str:
        return f"{cls.partition_path(topic, partition)}/state"

    def encode(self) -> bytes:
        fields: dict[str, JsonValue] = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
        }
        if self.joined_epochs:
            joined = sorted(self.joined_epochs.items())
            fields["joined_epochs"] = {str(broker): epoch for broker, epoch in joined}
        # A state that could not be decoded again would cost the partition: the state before it
        # stays.
        self._of_fields("of a partition's state", fields)
        return encode_object(fields)

    @classmethod
    def decode(cls, topic: str, partition: int, data: bytes) -> "PartitionStateZNode":
        path = cls.path(topic, partition)
        return cls._of_fields(path, decode_object(path, data))

    @classmethod
    def _of_fields(cls, path: str, fields: Fields) -> "PartitionStateZNode":
        isr = broker_ids(path, "isr", required_value(path, fields, "isr"))
        return cls(
            leader=BrokerId(int_field(path, fields, "leader", LEADERS)),
            leader_epoch=LeaderEpoch(int_field(path, fields, "leader_epoch", EPOCHS)),
            isr=tuple(BrokerId(broker) for broker in isr),
            controller_epoch=ControllerEpoch(int_field(path, fields, "controller_epoch", EPOCHS)),
            joined_epochs=_joined_epochs(path, fields.get("joined_epochs", {})),
        )


def _joined_epochs(path: str, value: JsonValue) -> dict[BrokerId, BrokerEpoch]:
    if not isinstance(value, dict):
        raise ZnodeFormatError(f"znode {path}: 'joined_epochs' must be an object")
    found = {}
    for name in value:
        broker = number_named(name, BROKER_IDS)
        if broker is None:
            raise ZnodeFormatError(f"znode {path}: '{name[:40]}' is not a broker's id")
        found[BrokerId(broker)] = BrokerEpoch(int_field(path, value, name, BROKER_EPOCHS))
    return found


def _topic_id(path: str, text: str) -> uuid.UUID:
    try:
        return topic_id_from_text(text)
    except ValueError as error:
        raise ZnodeFormatError(f"znode {path}: {error}") from None


PERSISTENT_PATHS = (
    BrokerIdZNode.PARENT,
    TopicZNode.PARENT,
    ConfigZNode.TOPICS,
    ConfigZNode.BROKERS,
    "/config/changes",
    "/isr_change_notification",
    "/log_dir_event_notification",
    "/admin",
    "/consumers",
    "/cluster",
)
"""Created, with their parents, by whichever broker comes first.

Below /admin a node exists only while its request does.
"""
