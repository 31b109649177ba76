"""Names of things: brokers, epochs, partitions, the topics that brokers keep for themselves. A
broker id never passes for an epoch.
"""

import base64
import binascii
import contextlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, NewType, TypeVar
from uuid import UUID

from storage_engine.core.errors import ErrorCode, KafkaError

Value = TypeVar("Value")

BrokerId = NewType("BrokerId", int)
ControllerEpoch = NewType("ControllerEpoch", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
"""The incarnation of a broker: the creation transaction id of its registration znode (R-CTL4)."""

PartitionEpoch = NewType("PartitionEpoch", int)
"""The version of a partition's state; it grows with every accepted change of leader or ISR."""

NO_LEADER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)
NO_TAIL_LOST = BrokerEpoch(0)
"""The value for a broker whose logs were never cut by a stop of its machine."""
TAIL_LOST_NOW = BrokerEpoch(-1)
"""The value for a broker whose logs may have been cut by its last stop, and that has not registered
since."""

MAX_TOPIC_LENGTH = 249
"""Kafka's limit: `<topic>-<partition>` must fit a file name of 255 bytes."""

_LEGAL_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @classmethod
    def parse(cls, name: str) -> "TopicPartition":
        """The inverse of `str`; ValueError when `name` is not `<topic>-<partition>`."""
        topic, _, partition = name.rpartition("-")
        if topic and partition.isdecimal():
            found = cls(topic, int(partition))
            if str(found) == name:
                return found
        raise ValueError(f"'{name}' is not of the form <topic>-<partition>")


def by_topic(values: Mapping[TopicPartition, Value]) -> dict[str, list[tuple[int, Value]]]:
    topics: dict[str, list[tuple[int, Value]]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, []).append((partition, value))
    return topics


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def topic_name_problem(topic: str) -> str | None:
    """Return why `topic` can't be the name of a topic; None when it can."""
    if not topic:
        return "the topic name is empty"
    if topic in (".", ".."):
        return f"the topic name can't be '{topic}'"
    if len(topic) > MAX_TOPIC_LENGTH:
        return (
            f"the topic name has {len(topic)} characters, at most {MAX_TOPIC_LENGTH} are possible"
        )
    if not _LEGAL_TOPIC.fullmatch(topic):
        return (
            f"the topic name '{topic}' has characters other than letters, digits, '.', '_' and '-'"
        )
    return None


def topic_id_to_text(topic_id: UUID) -> str:
    """Return the id as 22 characters of URL-safe base64, the form in which Kafka shows ids."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def topic_id_from_text(text: str) -> UUID:
    """The inverse of `topic_id_to_text`; ValueError when `text` is not of that form."""
    with contextlib.suppress(binascii.Error, ValueError):
        topic_id = UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        # Other characters are passed over when it is decoded.
        if topic_id_to_text(topic_id) == text:
            return topic_id
    raise ValueError(f"'{text}' is not a topic id")


TRANSACTION_STATE_TOPIC = "__transaction_state"

GROUP_OFFSETS_TOPIC = "__consumer_offsets"

INTERNAL_TOPICS = frozenset({TRANSACTION_STATE_TOPIC, GROUP_OFFSETS_TOPIC})


def check_not_internal(topic: str, action: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION for a topic that clients may not `action`."""
    if topic in INTERNAL_TOPICS:
        raise KafkaError(
            f"'{topic}' belongs to the brokers, clients can't {action} it",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
