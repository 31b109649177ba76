"""StopReplica: the controller orders a broker to stop replicas, and to delete the files of some
(R-CTL6).

A message of our own under Kafka's api key 5, version 0, not flexible. Field order:

    request    controller_id int32, controller_epoch int32, broker_epoch int64, order number
               int64,
               [topic string, partition int32, leader_epoch int32, delete bool]
    response   error_code int16, [topic string, partition int32, error_code int16]
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch
from storage_engine.protocol.apis.order_answers import (
    OrderAnswer,
    encode_order_answer,
    order_answer_decoder,
)
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_with


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartition:
    """One replica to stop."""

    topic: str
    partition: int
    leader_epoch: LeaderEpoch
    delete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest:
    """An order of the controller to one broker."""

    controller_id: BrokerId
    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    """The incarnation of the receiver that the order is for (R-CTL4)."""

    partitions: Sequence[StopReplicaPartition]
    order_number: int = 0
    """Grows with each delivery of one controller epoch: an order with a smaller number was given up
    (R-CTL1)."""


class StopReplicaResponse(OrderAnswer):
    """Answer to a StopReplicaRequest."""

    __slots__ = ()


def decode_request(version: int, body: memoryview) -> StopReplicaRequest:
    return decode_with(f"StopReplica request of version {version}", body, False, _read_request)


def _read_request(reader: Reader) -> StopReplicaRequest:
    # Keyword arguments are evaluated in the order in which they stand, which is that of the wire.
    return StopReplicaRequest(
        controller_id=BrokerId(reader.int32()),
        controller_epoch=ControllerEpoch(reader.int32()),
        broker_epoch=BrokerEpoch(reader.int64()),
        order_number=reader.int64(),
        partitions=reader.array(11, lambda: _read_partition(reader)),
    )


def _read_partition(reader: Reader) -> StopReplicaPartition:
    return StopReplicaPartition(
        topic=reader.name(),
        partition=reader.int32(),
        leader_epoch=LeaderEpoch(reader.int32()),
        delete=reader.boolean(),
    )


def encode_request(version: int, request: StopReplicaRequest) -> list[Buffer]:
    writer = Writer(flexible=False)
    writer.int32(request.controller_id)
    writer.int32(request.controller_epoch)
    writer.int64(request.broker_epoch)
    writer.int64(request.order_number)
    writer.count(len(request.partitions))
    for partition in request.partitions:
        writer.string(partition.topic)
        writer.int32(partition.partition)
        writer.int32(partition.leader_epoch)
        writer.boolean(partition.delete)
    return [writer.data]


API = ApiSpec(
    key=5,
    name="StopReplica",
    min_version=0,
    max_version=0,
    first_flexible_version=None,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=order_answer_decoder("StopReplica", StopReplicaResponse),
    encode_response=encode_order_answer,
)
