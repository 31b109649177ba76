"""LeaderAndIsr: the controller sends a broker the partitions that it leads and those that it
follows (R-CTL3).

A message of our own under Kafka's api key 4, not flexible. Field order:

    request    controller_id int32, controller_epoch int32, broker_epoch int64, order number
               int64, full bool, part int32, goes_on bool,
               [topic string, topic_id uuid, partition int32, controller_epoch int32, leader int32,
                leader_epoch int32, isr [int32], partition_epoch int32, replicas [int32],
                is_new bool, [member int32, joined_epoch int64]],
               [id int32, host string, port int32]
    response   error_code int16, [topic string, partition int32, error_code int16]
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
)
from storage_engine.protocol.apis.order_answers import (
    OrderAnswer,
    encode_order_answer,
    order_answer_decoder,
)
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import (
    NO_TOPIC_ID,
    Reader,
    Writer,
    decode_with,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrPartition:
    """The state of one partition, as the controller wrote it to ZooKeeper."""

    topic: str
    partition: int
    controller_epoch: ControllerEpoch
    """The epoch of the controller that wrote this state, which may be an earlier one than the
    sender."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: Sequence[BrokerId]
    partition_epoch: PartitionEpoch
    replicas: Sequence[BrokerId]
    topic_id: UUID = NO_TOPIC_ID
    is_new: bool = False
    """True for a partition that has just been created, whose log has to be empty."""
    joined_epochs: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """The known incarnations of the ISR's members when they joined it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLeader:
    """The address of a leader to fetch from."""

    broker_id: BrokerId
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrRequest:
    """`full` means that `partitions` is all that the broker hosts: it stops any other."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    """The incarnation of the receiver that the order is for (R-CTL4)."""

    partitions: Sequence[LeaderAndIsrPartition]
    live_leaders: Sequence[LiveLeader] = ()
    full: bool = False
    order_number: int = 0
    """Grows with each delivery of one controller epoch: an order with a smaller number was given up
    (R-CTL1)."""
    part: int = 0
    """The number, from 0 on, of the part of a full order that is too long for one request."""
    goes_on: bool = False
    """True when another part follows."""


class LeaderAndIsrResponse(OrderAnswer):
    """Answer to a LeaderAndIsrRequest."""

    __slots__ = ()


def decode_request(_version: int, body: memoryview) -> LeaderAndIsrRequest:
    return decode_with("LeaderAndIsr request", body, False, _read_request)


# Keyword arguments are evaluated in the order in which they stand, which is that of the wire.


def _read_request(reader: Reader) -> LeaderAndIsrRequest:
    return LeaderAndIsrRequest(
        controller_id=BrokerId(reader.int32()),
        controller_epoch=ControllerEpoch(reader.int32()),
        broker_epoch=BrokerEpoch(reader.int64()),
        order_number=reader.int64(),
        full=reader.boolean(),
        part=reader.int32(),
        goes_on=reader.boolean(),
        partitions=reader.array(51, lambda: _read_partition(reader)),
        live_leaders=reader.array(10, lambda: _read_live_leader(reader)),
    )


def _read_partition(reader: Reader) -> LeaderAndIsrPartition:
    return LeaderAndIsrPartition(
        topic=sys.intern(reader.name()),
        topic_id=reader.uuid(),
        partition=reader.int32(),
        controller_epoch=ControllerEpoch(reader.int32()),
        leader=BrokerId(reader.int32()),
        leader_epoch=LeaderEpoch(reader.int32()),
        isr=[BrokerId(broker) for broker in reader.int32s()],
        partition_epoch=PartitionEpoch(reader.int32()),
        replicas=[BrokerId(broker) for broker in reader.int32s()],
        is_new=reader.boolean(),
        joined_epochs=dict(
            reader.array(12, lambda: (BrokerId(reader.int32()), BrokerEpoch(reader.int64())))
        ),
    )


def _read_live_leader(reader: Reader) -> LiveLeader:
    return LiveLeader(broker_id=BrokerId(reader.int32()), host=reader.name(), port=reader.int32())


def encode_request(_version: int, request: LeaderAndIsrRequest) -> list[Buffer]:
    writer = Writer(flexible=False)
    writer.int32(request.controller_id)
    writer.int32(request.controller_epoch)
    writer.int64(request.broker_epoch)
    writer.int64(request.order_number)
    writer.boolean(request.full)
    writer.int32(request.part)
    writer.boolean(request.goes_on)
    writer.count(len(request.partitions))
    for partition in request.partitions:
        writer.string(partition.topic)
        writer.uuid(partition.topic_id)
        writer.int32(partition.partition)
        writer.int32(partition.controller_epoch)
        writer.int32(partition.leader)
        writer.int32(partition.leader_epoch)
        writer.int32s(partition.isr)
        writer.int32(partition.partition_epoch)
        writer.int32s(partition.replicas)
        writer.boolean(partition.is_new)
        writer.count(len(partition.joined_epochs))
        for member, joined_epoch in partition.joined_epochs.items():
            writer.int32(member)
            writer.int64(joined_epoch)
    writer.count(len(request.live_leaders))
    for leader in request.live_leaders:
        writer.int32(leader.broker_id)
        writer.string(leader.host)
        writer.int32(leader.port)
    return [writer.data]


API = ApiSpec(
    key=4,
    name="LeaderAndIsr",
    min_version=0,
    max_version=0,
    first_flexible_version=None,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=order_answer_decoder("LeaderAndIsr", LeaderAndIsrResponse),
    encode_response=encode_order_answer,
)
