"""UpdateMetadata: the controller sends every broker the metadata that answers Metadata requests
(R-CTL2).

A message of our own under Kafka's api key 6, not flexible. Field order:

    request    controller_id int32, controller_epoch int32, broker_epoch int64, order number
               int64, full bool, part int32, goes_on bool,
               [id int32, host string, port int32, rack nullable string, epoch int64,
                [listener string, host string, port int32]],
               removed topics [string],
               [topic string, topic_id uuid, partition int32, leader int32, leader_epoch int32,
                isr [int32], replicas [int32], offline_replicas [int32]]
    response   error_code int16
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import overload
from uuid import UUID

from storage_engine.core.control.cluster_state import BrokerEndpoint
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import (
    NO_TOPIC_ID,
    Reader,
    Writer,
    decode_leniently,
    decode_with,
)

ANY_BROKER_EPOCH = BrokerEpoch(-1)
"""Matches any incarnation of the receiver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker:
    """A live broker."""

    broker_id: BrokerId
    host: str
    port: int
    epoch: BrokerEpoch
    rack: str | None = None
    endpoints: tuple[BrokerEndpoint, ...] = ()
    """See `BrokerInfo`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartition:
    """The part of a partition's state that clients may see. A broker keeps it, and partitions with
    the same replicas share one tuple of them."""

    topic: str
    partition: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    offline_replicas: tuple[BrokerId, ...] = ()
    topic_id: UUID = NO_TOPIC_ID


class SharedPartitions(Sequence[UpdateMetadataPartition]):
    """Partitions that the requests to many brokers have in common: encoded once for all of them,
    all at once or part by part."""

    __slots__ = ("_count", "_encoded_count", "_make", "_writer")

    def __init__(
        self, count: int, make: Callable[[int, int], list[UpdateMetadataPartition]]
    ) -> None:
        """`make(start, end)` makes those of a range; it is called when they are looked at, since
        most requests only need the bytes."""
        self._count = count
        self._make = make
        self._writer = Writer(flexible=False)
        self._encoded_count = 0

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> UpdateMetadataPartition: ...

    @overload
    def __getitem__(self, index: slice) -> list[UpdateMetadataPartition]: ...

    def __getitem__(
        self, index: int | slice
    ) -> UpdateMetadataPartition | list[UpdateMetadataPartition]:
        return self._make(0, self._count)[index]

    def __iter__(self) -> Iterator[UpdateMetadataPartition]:
        return iter(self._make(0, self._count))

    def encode_more(self, limit: int) -> bool:
        """Encode the next `limit` partitions; return True once all are encoded. Where one can't be,
        its exception comes each time, here and in `encoded`."""
        start = self._encoded_count
        end = min(start + limit, self._count)
        try:
            _write_partitions(self._writer, self._make(start, end))
        except Exception:
            self._writer, self._encoded_count = Writer(flexible=False), 0
            raise
        self._encoded_count = end
        return end == self._count

    def encoded(self) -> bytearray:
        self.encode_more(self._count)
        return self._writer.data


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest:
    """`brokers` are always all live ones; with `full`, `partitions` are all partitions of the
    cluster."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    brokers: Sequence[UpdateMetadataBroker]
    partitions: Sequence[UpdateMetadataPartition] = ()
    removed_topics: Sequence[str] = ()
    full: bool = False
    broker_epoch: BrokerEpoch = ANY_BROKER_EPOCH
    """The incarnation of the receiver that the order is for (R-CTL4)."""
    order_number: int = 0
    """Grows with each delivery of one controller epoch: an order with a smaller number was given up
    (R-CTL1)."""
    part: int = 0
    """The number, from 0 on, of the part of a full order that is too long for one request."""
    goes_on: bool = False
    """True when another part follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse:
    """Answer to an UpdateMetadataRequest."""

    error_code: int = 0


def decode_request(_version: int, body: memoryview) -> UpdateMetadataRequest:
    return decode_with("UpdateMetadata request", body, False, _read_request)


# Keyword arguments are evaluated in the order in which they stand, which is that of the wire.


def _read_request(reader: Reader) -> UpdateMetadataRequest:
    return UpdateMetadataRequest(
        controller_id=BrokerId(reader.int32()),
        controller_epoch=ControllerEpoch(reader.int32()),
        broker_epoch=BrokerEpoch(reader.int64()),
        order_number=reader.int64(),
        full=reader.boolean(),
        part=reader.int32(),
        goes_on=reader.boolean(),
        brokers=reader.array(24, lambda: _read_broker(reader)),
        removed_topics=reader.array(2, reader.name),
        partitions=reader.array(42, lambda: _read_partition(reader)),
    )


def _read_broker(reader: Reader) -> UpdateMetadataBroker:
    return UpdateMetadataBroker(
        broker_id=BrokerId(reader.int32()),
        host=reader.name(),
        port=reader.int32(),
        rack=reader.nullable_name(),
        epoch=BrokerEpoch(reader.int64()),
        endpoints=tuple(reader.array(8, lambda: _read_endpoint(reader))),
    )


def _read_endpoint(reader: Reader) -> BrokerEndpoint:
    return BrokerEndpoint(listener=reader.name(), host=reader.name(), port=reader.int32())


def _read_partition(reader: Reader) -> UpdateMetadataPartition:
    return UpdateMetadataPartition(
        topic=sys.intern(reader.name()),
        topic_id=_shared_id(reader.uuid()),
        partition=reader.int32(),
        leader=BrokerId(reader.int32()),
        leader_epoch=LeaderEpoch(reader.int32()),
        isr=_read_broker_ids(reader),
        replicas=_read_broker_ids(reader),
        offline_replicas=_read_broker_ids(reader),
    )


def _read_broker_ids(reader: Reader) -> tuple[BrokerId, ...]:
    return _shared_replicas(tuple(reader.int32s()))


# Brokers keep what they read here, of every partition of the cluster. There are few ways to place
# replicas, and few topics: what is equal is kept once.


@lru_cache(4096)
def _shared_replicas(brokers: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


@lru_cache(64)
def _shared_id(topic_id: UUID) -> UUID:
    return topic_id


def encode_request(_version: int, request: UpdateMetadataRequest) -> list[Buffer]:
    writer = Writer(flexible=False)
    writer.int32(request.controller_id)
    writer.int32(request.controller_epoch)
    writer.int64(request.broker_epoch)
    writer.int64(request.order_number)
    writer.boolean(request.full)
    writer.int32(request.part)
    writer.boolean(request.goes_on)
    writer.count(len(request.brokers))
    for broker in request.brokers:
        writer.int32(broker.broker_id)
        writer.string(broker.host)
        writer.int32(broker.port)
        writer.nullable_string(broker.rack)
        writer.int64(broker.epoch)
        writer.count(len(broker.endpoints))
        for endpoint in broker.endpoints:
            writer.string(endpoint.listener)
            writer.string(endpoint.host)
            writer.int32(endpoint.port)
    writer.count(len(request.removed_topics))
    for topic in request.removed_topics:
        writer.string(topic)
    writer.count(len(request.partitions))
    if isinstance(request.partitions, SharedPartitions):
        return [writer.data, request.partitions.encoded()]
    _write_partitions(writer, request.partitions)
    return [writer.data]


def _write_partitions(writer: Writer, partitions: Iterable[UpdateMetadataPartition]) -> None:
    for partition in partitions:
        writer.string(partition.topic)
        writer.uuid(partition.topic_id)
        writer.int32(partition.partition)
        writer.int32(partition.leader)
        writer.int32(partition.leader_epoch)
        writer.int32s(partition.isr)
        writer.int32s(partition.replicas)
        writer.int32s(partition.offline_replicas)


def decode_response(version: int, body: memoryview) -> UpdateMetadataResponse:
    return decode_leniently(
        f"UpdateMetadata response of version {version}",
        body,
        False,
        lambda reader: UpdateMetadataResponse(error_code=reader.int16()),
    )


def encode_response(version: int, response: UpdateMetadataResponse) -> list[Buffer]:
    writer = Writer(flexible=False)
    writer.int16(response.error_code)
    return [writer.data]


API = ApiSpec(
    key=6,
    name="UpdateMetadata",
    min_version=0,
    max_version=0,
    first_flexible_version=None,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
