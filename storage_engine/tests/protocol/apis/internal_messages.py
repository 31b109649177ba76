"""One message of each kind that brokers send each other, with every field away from its default."""

from typing import Any
from uuid import UUID

from storage_engine.core.control.cluster_state import BrokerEndpoint
from storage_engine.core.ids import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    PartitionEpoch,
    TopicPartition,
)
from storage_engine.protocol.apis.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from storage_engine.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LiveLeader,
)
from storage_engine.protocol.apis.order_answers import PartitionOutcome
from storage_engine.protocol.apis.stop_replica import (
    StopReplicaPartition,
    StopReplicaRequest,
    StopReplicaResponse,
)
from storage_engine.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartition,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)

TOPIC_ID = UUID("6d0b3b1c-27a5-4a6f-9b6e-0a3d4f5e6a7b")

REQUESTS: dict[int, Any] = {
    4: LeaderAndIsrRequest(
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(2),
        broker_epoch=BrokerEpoch(2**40),
        order_number=2**41,
        partitions=[
            LeaderAndIsrPartition(
                topic="flights",
                topic_id=TOPIC_ID,
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
        ],
        live_leaders=[LiveLeader(broker_id=BrokerId(11), host="broker-1", port=9092)],
        full=True,
        part=3,
        goes_on=True,
    ),
    5: StopReplicaRequest(
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(2),
        broker_epoch=BrokerEpoch(3),
        order_number=12,
        partitions=[
            StopReplicaPartition(
                topic="flights", partition=4, leader_epoch=LeaderEpoch(5), delete=True
            )
        ],
    ),
    6: UpdateMetadataRequest(
        controller_id=BrokerId(1),
        controller_epoch=ControllerEpoch(2),
        broker_epoch=BrokerEpoch(3),
        order_number=12,
        brokers=[
            UpdateMetadataBroker(
                broker_id=BrokerId(4),
                host="broker-4",
                port=9094,
                epoch=BrokerEpoch(5),
                rack="r1",
                endpoints=(
                    BrokerEndpoint("INTERNAL", "inside", 1),
                    BrokerEndpoint("CLIENT", "outside", 2),
                ),
            )
        ],
        partitions=[
            UpdateMetadataPartition(
                topic="flights",
                topic_id=TOPIC_ID,
                partition=6,
                leader=BrokerId(7),
                leader_epoch=LeaderEpoch(8),
                isr=(BrokerId(9),),
                replicas=(BrokerId(9), BrokerId(10)),
                offline_replicas=(BrokerId(10),),
            )
        ],
        removed_topics=["weather"],
        full=True,
        part=3,
        goes_on=True,
    ),
    7: ControlledShutdownRequest(broker_id=BrokerId(1), broker_epoch=BrokerEpoch(3)),
}

RESPONSES: dict[int, Any] = {
    4: LeaderAndIsrResponse(
        error_code=1,
        partitions=[PartitionOutcome(topic="flights", partition=2, error_code=3)],
    ),
    5: StopReplicaResponse(
        error_code=1,
        partitions=[PartitionOutcome(topic="flights", partition=2, error_code=3)],
    ),
    6: UpdateMetadataResponse(error_code=11),
    7: ControlledShutdownResponse(
        error_code=1, remaining_partitions=[TopicPartition("flights", 2)]
    ),
}
