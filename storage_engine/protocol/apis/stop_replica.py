"""StopReplica: the controller orders a broker to stop replicas, and to delete the files of some
(R-CTL6).

A message of our own under Kafka's api key 5, not flexible.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.core.ids import LeaderEpoch
from storage_engine.protocol.apis.fields import boolean, int32, name, structs
from storage_engine.protocol.apis.order_answers import ControllerOrder, OrderAnswer
from storage_engine.protocol.apis.struct_codec import api


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaPartition:
    """One replica to stop."""

    topic: str = name()
    partition: int = int32()
    leader_epoch: LeaderEpoch = LeaderEpoch(int32())
    delete: bool = boolean()


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaRequest(ControllerOrder):
    partitions: Sequence[StopReplicaPartition] = structs(StopReplicaPartition)


class StopReplicaResponse(OrderAnswer):
    """Answer to a StopReplicaRequest."""

    __slots__ = ()


API = api(5, StopReplicaRequest, StopReplicaResponse)
