"""What the brokers of a fake cluster say of coordinators and of groups."""

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from storage_engine.protocol.messages.find_coordinator import FindCoordinatorResponse
from storage_engine.tests.client.fake_cluster import FakeCluster


def found_at(fake: FakeCluster, broker_id: int) -> FindCoordinatorResponse:
    """The answer that names that broker."""
    return FindCoordinatorResponse(
        error_code=0,
        error_message=None,
        node_id=broker_id,
        host="127.0.0.1",
        port=fake.servers[broker_id].port,
    )


def no_consumer_group() -> ConsumerGroupDescribeResponse:
    """The answer of a coordinator to who asks for a consumer group that it does not have."""
    row = DescribedConsumerGroup(error_code=int(ErrorCode.GROUP_ID_NOT_FOUND))
    return ConsumerGroupDescribeResponse(groups=[row])
