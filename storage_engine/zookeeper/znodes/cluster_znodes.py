"""The znodes of a cluster: those that it has once (controller, settings, producer ids, features,
the cluster's own id), those of live brokers, and what brokers need for SCRAM beside the users'
credentials. Each class owns a path and its JSON. Requests to the controller are in `admin_znodes`.

The keys are exactly those that Kafka documents (R-CTL10). Further keys are written only for what
the documents have no place for (rack, endpoints); unknown keys of others are ignored. Source: the
JSON of the design documents (HA related ZooKeeper structure), R-CTL1, R-CTL4, R-CTL10.
"""

import ipaddress
import re
import secrets
import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar

from storage_engine.core.control.cluster_state import BrokerEndpoint
from storage_engine.core.features import (
    MAX_LEVEL,
    SUPPORTED_BY_FIRST_RELEASE,
    FeatureLevels,
    Supported,
)
from storage_engine.core.ids import (
    NO_TAIL_LOST,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    topic_id_to_text,
)
from storage_engine.zookeeper.znode_json import (
    BROKER_EPOCHS,
    BROKER_IDS,
    EPOCHS,
    PORTS,
    Fields,
    JsonValue,
    ZnodeFormatError,
    decode_object,
    encode_object,
    in_range,
    int_field,
    number_named,
    object_field,
    str_field,
    str_map,
    text,
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
        fields: dict[str, JsonValue] = {"version": 1, "brokerid": self.broker_id}
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
    def _bound(cls, fields: Fields, key: str) -> int:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureZNode:
    """/feature: the level that the cluster uses of each feature. Its version counts the changes.

    Only levels from 1 on are written, as Kafka writes them (format 2, KIP-584); format 1 has a
    lowest level beside each, which is ignored. A node with the status 0 has no levels.
    """

    PATH: ClassVar[str] = "/feature"
    FORMATS: ClassVar[range] = range(1, 3)
    ENABLED: ClassVar[int] = 1
    MAX_FEATURES: ClassVar[int] = 1000

    levels: Mapping[str, int]

    def encode(self) -> bytes:
        used = {name: level for name, level in sorted(self.levels.items()) if level > 0}
        return encode_object(
            {
                "version": 2,
                "status": self.ENABLED,
                "features": {name: {"max_version_level": used[name]} for name in used},
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> "FeatureZNode":
        path = cls.PATH
        fields = decode_object(path, data)
        int_field(path, fields, "version", cls.FORMATS)
        status = int_field(path, fields, "status", range(2))
        found = object_field(path, fields, "features")
        if len(found) > cls.MAX_FEATURES:
            raise ZnodeFormatError(f"znode {path} has more than {cls.MAX_FEATURES} features")
        levels = {}
        for name in found:
            text(path, "features", name, max_bytes=MAX_FEATURE_BYTES)
            feature = object_field(path, found, name)
            levels[name] = int_field(path, feature, "max_version_level", range(1, MAX_LEVEL + 1))
        return cls(levels=levels if status == cls.ENABLED else {})


MAX_FEATURE_BYTES = 255
"""The longest name of a feature that is read."""


def _supported_levels(path: str, fields: Fields) -> Supported:
    """Return the levels that a broker's node names; those of the first release where it names
    none."""
    if not fields.get("features"):
        return SUPPORTED_BY_FIRST_RELEASE
    found = object_field(path, fields, "features")
    if len(found) > FeatureZNode.MAX_FEATURES:
        raise ZnodeFormatError(f"znode {path} has more than {FeatureZNode.MAX_FEATURES} features")
    supported = {}
    for name in found:
        text(path, "features", name, max_bytes=MAX_FEATURE_BYTES)
        levels = object_field(path, found, name)
        lowest, highest = (
            int_field(path, levels, key, range(MAX_LEVEL + 1))
            for key in ("min_version", "max_version")
        )
        supported[name] = FeatureLevels(lowest, highest)
    return supported


MAX_HOST_BYTES = 255
"""The limit of a name in the DNS."""

_HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
"""A name, of which no resolver accepts empty or longer parts, or an address of version 4."""
_ZONE = re.compile(r"[A-Za-z0-9._-]+")
"""The zone of an address of version 6, after a %."""

_ENDPOINT = re.compile(r"(?P<listener>[A-Za-z0-9_-]{1,255})://(?P<host>.*):(?P<port>[0-9]{1,5})")
MAX_ENDPOINTS = 32
"""The most listeners of a broker that are looked at."""
NO_PORT = -1


def _is_host(host: str) -> bool:
    """Return True when a resolver may know the name. Lists of hosts are separated by commas."""
    if ":" not in host:
        return _HOST.fullmatch(host) is not None
    address, percent, zone = host.partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        return False
    return not percent or _ZONE.fullmatch(zone) is not None


PLAIN_PROTOCOL = "PLAINTEXT"
"""The security protocol of the one address that older registrations have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerIdZNode:
    """/brokers/ids/<id>, ephemeral: a live broker and its addresses."""

    PARENT: ClassVar[str] = "/brokers/ids"

    broker_id: BrokerId
    host: str | None
    """None, with NO_PORT, for a broker none of whose listeners is a plain one: older readers, which
    know this address alone, could not talk to it."""
    port: int
    rack: str | None = None
    machine: str | None = None
    """The name of the machine that the broker runs on (`broker.host.name`)."""
    is_cordoned: bool = False
    """Whether the broker takes no new replicas."""
    endpoints: tuple[str, ...] = ()
    """The advertised listeners, `PLAINTEXT://host:port`."""
    protocols: Mapping[str, str] = field(default_factory=dict)
    """The security protocol of each of them; empty where their names are their protocols."""
    tail_lost_epoch: BrokerEpoch = NO_TAIL_LOST
    """The broker's first incarnation since its machine stopped and may have cut its logs;
    TAIL_LOST_NOW: the one that this node creates."""
    supported: Supported = field(default_factory=lambda: SUPPORTED_BY_FIRST_RELEASE, hash=False)
    """The levels of features that the broker supports."""

    @classmethod
    def path(cls, broker_id: int) -> str:
        return f"{cls.PARENT}/{broker_id}"

    @staticmethod
    def ids(children: Iterable[str]) -> list[BrokerId]:
        """Return the ids among the children of PARENT; other names are ignored."""
        numbers = (number_named(name, BROKER_IDS) for name in children)
        return [BrokerId(number) for number in numbers if number is not None]

    def encode(self) -> bytes:
        fields: dict[str, JsonValue] = {
            "jmx_port": -1,
            "host": self.host,
            # The version says which of the fields are there.
            "version": self._format,
            "port": self.port,
        }
        if self.endpoints:
            fields["endpoints"] = list(self.endpoints)
        if self.protocols:
            fields["listener_security_protocol_map"] = dict(self.protocols)
        if self.rack is not None:
            fields["rack"] = self.rack
        if self.machine is not None:
            fields["host_name"] = self.machine
        if self.is_cordoned:
            fields["cordoned"] = True
        if self.tail_lost_epoch != NO_TAIL_LOST:
            fields["tail_lost_epoch"] = self.tail_lost_epoch
        if self._has_features:
            fields["features"] = {
                name: {"min_version": levels.lowest, "max_version": levels.highest}
                for name, levels in sorted(self.supported.items())
            }
        return encode_object(fields)

    @property
    def _has_features(self) -> bool:
        return self.supported != SUPPORTED_BY_FIRST_RELEASE

    @property
    def _format(self) -> int:
        if self._has_features:
            return 5
        return 4 if self.protocols else 1

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> "BrokerIdZNode":
        path = cls.path(broker_id)
        fields = decode_object(path, data)
        rack, machine = fields.get("rack"), fields.get("host_name")
        endpoints = fields.get("endpoints") or []
        if not isinstance(endpoints, list):
            raise ZnodeFormatError(f"znode {path}: 'endpoints' must be a list of strings")
        addresses = tuple(text(path, "endpoints", each) for each in endpoints)
        host, port = None, NO_PORT
        if fields.get("host") is not None or not _parsed_endpoints(addresses):
            host = str_field(path, fields, "host", max_bytes=MAX_HOST_BYTES)
            port = int_field(path, fields, "port", PORTS)
            if not _is_host(host):
                raise ZnodeFormatError(f"znode {path}: 'host' is no name or address of a machine")
        has_protocols = fields.get("listener_security_protocol_map") is not None
        return cls(
            broker_id=BrokerId(broker_id),
            host=host,
            port=port,
            rack=None if rack is None else text(path, "rack", rack),
            machine=None if machine is None else text(path, "host_name", machine),
            is_cordoned=fields.get("cordoned") is True,
            endpoints=addresses,
            protocols=str_map(path, fields, "listener_security_protocol_map")
            if has_protocols
            else {},
            tail_lost_epoch=BrokerEpoch(int_field(path, fields, "tail_lost_epoch", BROKER_EPOCHS))
            if "tail_lost_epoch" in fields
            else NO_TAIL_LOST,
            supported=_supported_levels(path, fields),
        )

    @property
    def listeners(self) -> tuple[BrokerEndpoint, ...]:
        """The endpoints to which one can connect; what is of no known form is left out."""
        return _parsed_endpoints(self.endpoints)

    def endpoint_for(self, protocol: str) -> BrokerEndpoint | None:
        """The first listener of a security protocol; None where the broker has none."""
        for endpoint in self.listeners:
            if self.protocols.get(endpoint.listener, endpoint.listener) == protocol:
                return endpoint
        return None

    def address_for(self, protocol: str) -> tuple[str, int] | None:
        """Host and port for clients that speak a security protocol; None where they can't talk to
        this broker."""
        endpoint = self.endpoint_for(protocol)
        if endpoint is not None:
            return endpoint.host, endpoint.port
        if protocol == PLAIN_PROTOCOL and self.host is not None:
            return self.host, self.port
        return None


def _parsed_endpoints(endpoints: Iterable[str]) -> tuple[BrokerEndpoint, ...]:
    found = []
    for text_form in islice(endpoints, MAX_ENDPOINTS):
        match = _ENDPOINT.fullmatch(text_form)
        if match is None:
            continue
        host, port = match["host"].removeprefix("[").removesuffix("]"), int(match["port"])
        if _is_host(host) and len(host) <= MAX_HOST_BYTES and port in PORTS:
            found.append(BrokerEndpoint(match["listener"], host, port))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramDecoyZNode:
    """/scram_decoy_key: a secret of the brokers, from which the salts of users that do not exist
    are made, so that all brokers give the same. Kafka has no such node."""

    PATH: ClassVar[str] = "/scram_decoy_key"
    KEY_BYTES: ClassVar[int] = 32

    key: bytes = field(repr=False)

    def encode(self) -> bytes:
        return encode_object({"version": 1, "key": b64encode(self.key).decode()})

    @classmethod
    def decode(cls, data: bytes) -> "ScramDecoyZNode":
        text = str_field(cls.PATH, decode_object(cls.PATH, data), "key")
        try:
            key = b64decode(text, validate=True)
        except ValueError:
            key = b""
        if len(key) != cls.KEY_BYTES:
            raise ZnodeFormatError(
                f"znode {cls.PATH}: 'key' must be {cls.KEY_BYTES} bytes in base64"
            )
        return cls(key=key)

    @classmethod
    def random(cls) -> "ScramDecoyZNode":
        return cls(key=secrets.token_bytes(cls.KEY_BYTES))
