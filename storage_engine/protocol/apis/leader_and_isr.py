"""LeaderAndIsr: the controller sends a broker the partitions that it leads and those that it
follows (R-CTL3).

A message of our own under Kafka's api key 4, not flexible.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
)
from storage_engine.protocol.apis.fields import (
    boolean,
    custom,
    int32,
    name,
    structs,
    uuid,
)
from storage_engine.protocol.apis.order_answers import OrderAnswer, OrderInParts
from storage_engine.protocol.apis.struct_codec import api
from storage_engine.protocol.apis.wire import Reader, Writer


def interned_name() -> str:
    """The name of a topic, which is kept."""
    return custom(lambda reader: sys.intern(reader.name()), Writer.string, 2, str)


def _read_broker_ids(reader: Reader) -> Sequence[BrokerId]:
    return [BrokerId(broker) for broker in reader.int32s()]


def _read_joined(reader: Reader) -> Mapping[BrokerId, BrokerEpoch]:
    return dict(reader.array(12, lambda: (BrokerId(reader.int32()), BrokerEpoch(reader.int64()))))


def _write_joined(writer: Writer, epochs: Mapping[BrokerId, BrokerEpoch]) -> None:
    writer.count(len(epochs))
    for member, joined_epoch in epochs.items():
        writer.int32(member)
        writer.int64(joined_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartition:
    """The state of one partition, as the controller wrote it to ZooKeeper."""

    topic: str = interned_name()
    topic_id: UUID = uuid()
    partition: int = int32()
    controller_epoch: ControllerEpoch = ControllerEpoch(int32())
    """The epoch of the controller that wrote this state, which may be an earlier one than the
    sender."""
    leader: BrokerId = BrokerId(int32())
    leader_epoch: LeaderEpoch = LeaderEpoch(int32())
    isr: Sequence[BrokerId] = custom(_read_broker_ids, Writer.int32s, 4, list)
    partition_epoch: PartitionEpoch = PartitionEpoch(int32())
    replicas: Sequence[BrokerId] = custom(_read_broker_ids, Writer.int32s, 4, list)
    is_new: bool = boolean()
    """True for a partition that has just been created, whose log has to be empty."""
    joined_epochs: Mapping[BrokerId, BrokerEpoch] = custom(_read_joined, _write_joined, 4, dict)
    """The known incarnations of the ISR's members when they joined it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLeader:
    """The address of a leader to fetch from."""

    broker_id: BrokerId = BrokerId(int32())
    host: str = name()
    port: int = int32()


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest(OrderInParts):
    """`full` means that `partitions` is all that the broker hosts: it stops any other."""

    partitions: Sequence[LeaderAndIsrPartition] = structs(LeaderAndIsrPartition)
    live_leaders: Sequence[LiveLeader] = structs(LiveLeader)


class LeaderAndIsrResponse(OrderAnswer):
    """Answer to a LeaderAndIsrRequest."""

    __slots__ = ()


API = api(4, LeaderAndIsrRequest, LeaderAndIsrResponse)
