"""LeaderAndIsr: the controller sends a broker its partitions."""

from uuid import UUID

from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
)
from storage_engine.protocol.apis.leader_and_isr import (
    API,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveLeader,
)
from storage_engine.tests.protocol.apis.internal.checked_messages import (
    ANSWER,
    ORDER,
    PART,
    check_messages,
)


def test_messages_arrive_as_they_were_sent() -> None:
    partition = LeaderAndIsrPartition(
        topic="flights",
        topic_id=UUID(int=77),
        partition=4,
        controller_epoch=ControllerEpoch(3),
        leader=BrokerId(5),
        leader_epoch=LeaderEpoch(6),
        isr=[BrokerId(7), BrokerId(8)],
        partition_epoch=PartitionEpoch(9),
        replicas=[BrokerId(7), BrokerId(8), BrokerId(10)],
        is_new=True,
        joined_epochs={BrokerId(7): BrokerEpoch(2**41), BrokerId(8): BrokerEpoch(12)},
    )
    leader = LiveLeader(broker_id=BrokerId(11), host="broker-1", port=9092)
    request = LeaderAndIsrRequest(**ORDER, **PART, partitions=[partition], live_leaders=[leader])
    check_messages(API, request, LeaderAndIsrResponse(**ANSWER))
