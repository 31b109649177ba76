"""Where the brokers of a fake cluster say that a coordinator is."""

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
