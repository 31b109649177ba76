"""UpdateMetadata: the controller sends every broker the metadata that answers Metadata requests
(R-CTL2).

A message of our own under Kafka's api key 6, not flexible.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import overload
from uuid import UUID

from storage_engine.core.control.cluster_state import BrokerEndpoint
from storage_engine.core.ids import BrokerEpoch, BrokerId, LeaderEpoch
from storage_engine.protocol.apis.fields import (
    custom,
    int16,
    int32,
    int64,
    name,
    names,
    nullable_name,
    structs,
)
from storage_engine.protocol.apis.order_answers import OrderInParts
from storage_engine.protocol.apis.spec import Buffer
from storage_engine.protocol.apis.struct_codec import api, struct_kind
from storage_engine.protocol.apis.wire import NO_TOPIC_ID, Reader, Writer

ANY_BROKER_EPOCH = BrokerEpoch(-1)
"""Matches any incarnation of the receiver."""


def _read_endpoints(reader: Reader) -> tuple[BrokerEndpoint, ...]:
    return tuple(
        reader.array(
            8,
            lambda: BrokerEndpoint(listener=reader.name(), host=reader.name(), port=reader.int32()),
        )
    )


def _write_endpoints(writer: Writer, endpoints: tuple[BrokerEndpoint, ...]) -> None:
    writer.count(len(endpoints))
    for endpoint in endpoints:
        writer.string(endpoint.listener)
        writer.string(endpoint.host)
        writer.int32(endpoint.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataBroker:
    """A live broker."""

    broker_id: BrokerId = BrokerId(int32())
    host: str = name()
    port: int = int32()
    rack: str | None = nullable_name()
    epoch: BrokerEpoch = BrokerEpoch(int64())
    endpoints: tuple[BrokerEndpoint, ...] = custom(_read_endpoints, _write_endpoints, 4, tuple)
    """See `BrokerInfo`."""


# Brokers keep what they read here, of every partition of the cluster. There are few ways to place
# replicas, and few topics: what is equal is kept once.


def _broker_ids() -> tuple[BrokerId, ...]:
    return custom(lambda reader: _shared_replicas(tuple(reader.int32s())), Writer.int32s, 4, tuple)


@lru_cache(4096)
def _shared_replicas(brokers: tuple[int, ...]) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, brokers))


@lru_cache(64)
def _shared_id(topic_id: UUID) -> UUID:
    return topic_id


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataPartition:
    """The part of a partition's state that clients may see. A broker keeps it, and partitions with
    the same replicas share one tuple of them."""

    topic: str = custom(lambda reader: sys.intern(reader.name()), Writer.string, 2, str)
    topic_id: UUID = custom(
        lambda reader: _shared_id(reader.uuid()), Writer.uuid, 16, lambda: NO_TOPIC_ID
    )
    partition: int = int32()
    leader: BrokerId = BrokerId(int32())
    leader_epoch: LeaderEpoch = LeaderEpoch(int32())
    isr: tuple[BrokerId, ...] = _broker_ids()
    replicas: tuple[BrokerId, ...] = _broker_ids()
    offline_replicas: tuple[BrokerId, ...] = _broker_ids()


_PARTITION = struct_kind(UpdateMetadataPartition, 0, flexible=False)


class SharedPartitions(Sequence[UpdateMetadataPartition]):
    """Partitions that the requests to many brokers have in common: encoded once for all of them,
    all at once or part by part."""

    __slots__ = ("_count", "_encoded_count", "_make", "_writer")

    def __init__(
        self, count: int, make: Callable[[int, int], list[UpdateMetadataPartition]]
    ) -> None:
        """`make(start, end)` makes the partitions of a range, and is called when they are read:
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


def _read_partitions(reader: Reader) -> Sequence[UpdateMetadataPartition]:
    return reader.array(_PARTITION.least_bytes, lambda: _PARTITION.read(reader))


def _write_count(writer: Writer, partitions: Sequence[UpdateMetadataPartition]) -> None:
    writer.count(len(partitions))
    if not isinstance(partitions, SharedPartitions):
        _write_partitions(writer, partitions)


def _write_partitions(writer: Writer, partitions: Iterable[UpdateMetadataPartition]) -> None:
    for partition in partitions:
        _PARTITION.write(writer, partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataRequest(OrderInParts):
    """`brokers` are always all live ones; with `full`, `partitions` are all partitions of the
    cluster."""

    broker_epoch: BrokerEpoch = BrokerEpoch(int64(default=ANY_BROKER_EPOCH))
    brokers: Sequence[UpdateMetadataBroker] = structs(UpdateMetadataBroker)
    removed_topics: Sequence[str] = names()
    partitions: Sequence[UpdateMetadataPartition] = custom(_read_partitions, _write_count, 4, list)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetadataResponse:
    """Answer to an UpdateMetadataRequest."""

    error_code: int = int16()


def _encode_request(version: int, request: UpdateMetadataRequest) -> list[Buffer]:
    """The bytes of partitions that requests share are not copied."""
    buffers = _API.encode_request(version, request)
    if isinstance(request.partitions, SharedPartitions):
        buffers.append(request.partitions.encoded())
    return buffers


_API = api(6, UpdateMetadataRequest, UpdateMetadataResponse)
API = replace(_API, encode_request=_encode_request)
