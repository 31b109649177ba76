"""StopReplica: the controller orders a broker to stop replicas, and to delete some."""

from storage_engine.core.ids import LeaderEpoch
from storage_engine.protocol.apis.stop_replica import (
    API,
    StopReplicaPartition,
    StopReplicaRequest,
    StopReplicaResponse,
)
from storage_engine.tests.protocol.apis.internal.checked_messages import (
    ANSWER,
    ORDER,
    check_messages,
)


def test_messages_arrive_as_they_were_sent() -> None:
    partition = StopReplicaPartition(
        topic="flights", partition=4, leader_epoch=LeaderEpoch(5), delete=True
    )
    request = StopReplicaRequest(**ORDER, partitions=[partition])
    check_messages(API, request, StopReplicaResponse(**ANSWER))
