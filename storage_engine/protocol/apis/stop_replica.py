"""StopReplica: the controller orders a broker to stop replicas, and to delete the files of some
(R-CTL6).

A message of our own under Kafka's api key 5, not flexible.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch
from storage_engine.protocol.apis.fields import boolean, int32, int64, name, structs
from storage_engine.protocol.apis.order_answers import OrderAnswer
from storage_engine.protocol.apis.struct_codec import api


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartition:
    """One replica to stop."""

    topic: str = name()
    partition: int = int32()
    leader_epoch: LeaderEpoch = LeaderEpoch(int32())
    delete: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest:
    """An order of the controller to one broker."""

    controller_id: BrokerId = BrokerId(int32())
    controller_epoch: ControllerEpoch = ControllerEpoch(int32())
    broker_epoch: BrokerEpoch = BrokerEpoch(int64())
    """The incarnation of the receiver that the order is for (R-CTL4)."""
    order_number: int = int64()
    """Grows with each delivery of one controller epoch: an order with a smaller number was given up
    (R-CTL1)."""
    partitions: Sequence[StopReplicaPartition] = structs(StopReplicaPartition)


class StopReplicaResponse(OrderAnswer):
    """Answer to a StopReplicaRequest."""

    __slots__ = ()


API = api(5, StopReplicaRequest, StopReplicaResponse)
