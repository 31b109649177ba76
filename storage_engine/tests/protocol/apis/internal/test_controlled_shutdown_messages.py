"""ControlledShutdown: a broker asks the controller whether it may stop."""

from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.protocol.apis.controlled_shutdown import (
    API,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from storage_engine.tests.protocol.apis.internal.checked_messages import check_messages


def test_messages_arrive_as_they_were_sent() -> None:
    request = ControlledShutdownRequest(broker_id=BrokerId(1), broker_epoch=BrokerEpoch(3))
    left = [TopicPartition("flights", 2)]
    check_messages(
        API, request, ControlledShutdownResponse(error_code=1, remaining_partitions=left)
    )
