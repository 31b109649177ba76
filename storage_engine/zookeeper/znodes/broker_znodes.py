"""The znode of a live broker: its path, its JSON, and the addresses in it.

The keys are exactly those that Kafka documents (R-CTL10). Further keys are written only for what
the documents have no place for (rack, endpoints); unknown keys of others are ignored.

Source: the JSON of the design documents (HA related ZooKeeper structure), R-CTL4, R-CTL10.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

from storage_engine.core.control.cluster_state import BrokerEndpoint
from storage_engine.core.ids import NO_TAIL_LOST, BrokerEpoch, BrokerId
from storage_engine.zookeeper.znode_json import (
    BROKER_EPOCHS,
    BROKER_IDS,
    PORTS,
    ZnodeFormatError,
    decode_object,
    encode_object,
    int_field,
    number_named,
    str_field,
    str_map,
    text,
)

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
    endpoints: tuple[str, ...] = ()
    """The advertised listeners, `PLAINTEXT://host:port`."""
    protocols: Mapping[str, str] = field(default_factory=dict)
    """The security protocol of each of them; empty where their names are their protocols."""
    tail_lost_epoch: BrokerEpoch = NO_TAIL_LOST
    """The broker's first incarnation since its machine stopped and may have cut its logs;
    TAIL_LOST_NOW: the one that this node creates."""

    @classmethod
    def path(cls, broker_id: int) -> str:
        return f"{cls.PARENT}/{broker_id}"

    @staticmethod
    def ids(children: Iterable[str]) -> list[BrokerId]:
        """Return the ids among the children of PARENT; other names are ignored."""
        numbers = (number_named(name, BROKER_IDS) for name in children)
        return [BrokerId(number) for number in numbers if number is not None]

    def encode(self) -> bytes:
        fields: dict[str, Any] = {
            "jmx_port": -1,
            "host": self.host,
            # The version says which of the fields are there.
            "version": 4 if self.protocols else 1,
            "port": self.port,
        }
        if self.endpoints:
            fields["endpoints"] = list(self.endpoints)
        if self.protocols:
            fields["listener_security_protocol_map"] = dict(self.protocols)
        if self.rack is not None:
            fields["rack"] = self.rack
        if self.tail_lost_epoch != NO_TAIL_LOST:
            fields["tail_lost_epoch"] = self.tail_lost_epoch
        return encode_object(fields)

    @classmethod
    def decode(cls, broker_id: int, data: bytes) -> "BrokerIdZNode":
        path = cls.path(broker_id)
        fields = decode_object(path, data)
        rack = fields.get("rack")
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
            endpoints=addresses,
            protocols=str_map(path, fields, "listener_security_protocol_map")
            if has_protocols
            else {},
            tail_lost_epoch=BrokerEpoch(int_field(path, fields, "tail_lost_epoch", BROKER_EPOCHS))
            if "tail_lost_epoch" in fields
            else NO_TAIL_LOST,
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
