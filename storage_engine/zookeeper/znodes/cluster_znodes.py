"""The znodes that a cluster has once: controller, settings, producer ids, the cluster's own id.
Each class owns a path and its JSON. Requests to the controller are in `admin_znodes`.

The keys are exactly those that Kafka documents (R-CTL10). Further keys are written only for what
the documents have no place for; unknown keys of others are ignored.

Source: the JSON of the design documents (HA related ZooKeeper structure), R-CTL1, R-CTL10.
"""

import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from storage_engine.core.ids import BrokerId, ControllerEpoch, topic_id_to_text
from storage_engine.zookeeper.znode_json import (
    BROKER_IDS,
    EPOCHS,
    ZnodeFormatError,
    decode_object,
    encode_object,
    in_range,
    int_field,
    number_named,
    str_field,
    str_map,
)

INITIAL_CONTROLLER_EPOCH = ControllerEpoch(0)
"""The content of /controller_epoch before the first election; the first controller has epoch 1."""

MAX_CLUSTER_ID_BYTES = 255

_WHOLE_NUMBER = re.compile(rb"[0-9]{1,10}")
_PRODUCER_IDS = range(2**63 - 2**20)
"""The ids whose next block fits into 64 bits, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerZNode:
    """/controller, ephemeral: the id of the controller."""

    PATH: ClassVar[str] = "/controller"

    broker_id: BrokerId
    timestamp_ms: int | None = None
    """The time of its election, for people only."""

    def encode(self) -> bytes:
        fields: dict[str, Any] = {"version": 1, "brokerid": self.broker_id}
        if self.timestamp_ms is not None:
            fields["timestamp"] = str(self.timestamp_ms)
        return encode_object(fields)

    @classmethod
    def decode(cls, data: bytes) -> "ControllerZNode":
        fields = decode_object(cls.PATH, data)
        return cls(
            broker_id=BrokerId(int_field(cls.PATH, fields, "brokerid", BROKER_IDS)),
            timestamp_ms=number_named(str(fields.get("timestamp")), range(2**63)),
        )


class ControllerEpochZNode:
    """/controller_epoch: a bare integer, not JSON; raised by every election (R-CTL1)."""

    PATH: ClassVar[str] = "/controller_epoch"

    @staticmethod
    def encode(epoch: ControllerEpoch) -> bytes:
        return str(epoch).encode()

    @classmethod
    def decode(cls, data: bytes) -> ControllerEpoch:
        if not _WHOLE_NUMBER.fullmatch(data.strip()):
            raise ZnodeFormatError(
                f"znode {cls.PATH} holds {data[:40]!r} where a whole number is expected"
            )
        return ControllerEpoch(in_range(cls.PATH, "it", int(data), EPOCHS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigZNode:
    """/config/topics/<topic>, /config/brokers/<id> and /config/brokers/<default>: settings that
    override those of the broker's file; the name `<default>` is literal, and stands for all
    brokers. /config/users/<name>: the credentials of a user, which are not shown."""

    TOPICS: ClassVar[str] = "/config/topics"
    BROKERS: ClassVar[str] = "/config/brokers"
    USERS: ClassVar[str] = "/config/users"
    ALL_BROKERS: ClassVar[str] = "<default>"

    config: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def topic_path(cls, topic: str) -> str:
        return f"{cls.TOPICS}/{topic}"

    def encode(self) -> bytes:
        return encode_object({"version": 1, "config": dict(sorted(self.config.items()))})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ConfigZNode":
        return cls(config=str_map(path, decode_object(path, data), "config"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdBlockZNode:
    """/latest_producer_id_block: the newest block of producer ids that a broker has claimed."""

    PATH: ClassVar[str] = "/latest_producer_id_block"
    BLOCK_SIZE: ClassVar[int] = 1000

    broker_id: BrokerId
    first_id: int
    last_id: int
    """The last id of the block, inclusive, as Kafka writes it."""

    def encode(self) -> bytes:
        # These are strings, as in Kafka: 64 bits are more than a JSON number holds everywhere.
        return encode_object(
            {
                "version": 1,
                "broker": self.broker_id,
                "block_start": str(self.first_id),
                "block_end": str(self.last_id),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> "ProducerIdBlockZNode":
        fields = decode_object(cls.PATH, data)
        return cls(
            broker_id=BrokerId(int_field(cls.PATH, fields, "broker", BROKER_IDS)),
            first_id=cls._bound(fields, "block_start"),
            last_id=cls._bound(fields, "block_end"),
        )

    @classmethod
    def _bound(cls, fields: dict[str, Any], key: str) -> int:
        bound = number_named(str_field(cls.PATH, fields, key), _PRODUCER_IDS)
        if bound is None:
            raise ZnodeFormatError(
                f"znode {cls.PATH}: '{key}' is not a whole number below {_PRODUCER_IDS.stop}"
            )
        return bound

    @classmethod
    def next_block(
        cls, previous: "ProducerIdBlockZNode | None", broker_id: BrokerId
    ) -> "ProducerIdBlockZNode":
        """Return the block after `previous`; the first one starts at 0."""
        first_id = previous.last_id + 1 if previous else 0
        return cls(broker_id=broker_id, first_id=first_id, last_id=first_id + cls.BLOCK_SIZE - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdZNode:
    """/cluster/id: written once by the first broker, never changed."""

    PATH: ClassVar[str] = "/cluster/id"

    cluster_id: str

    def encode(self) -> bytes:
        return encode_object({"version": "1", "id": self.cluster_id})

    @classmethod
    def decode(cls, data: bytes) -> "ClusterIdZNode":
        fields = decode_object(cls.PATH, data)
        cluster_id = str_field(cls.PATH, fields, "id", max_bytes=MAX_CLUSTER_ID_BYTES)
        if not cluster_id.isprintable() or not cluster_id:
            raise ZnodeFormatError(f"znode {cls.PATH}: 'id' is no name: {cluster_id!r}")
        return cls(cluster_id=cluster_id)

    @classmethod
    def random(cls) -> "ClusterIdZNode":
        return cls(cluster_id=topic_id_to_text(uuid.uuid4()))
