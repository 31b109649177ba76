"""DescribeCluster: cluster id, controller and live brokers. Source: KIP-700."""

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.cluster_for_clients import ClusterForClients
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
"""The kind of endpoint that is served; Kafka's other kind, KRaft controllers, does not exist
here."""


def handle(
    cluster: ClusterForClients,
    call: ApiCall[DescribeClusterResponse],
    request: DescribeClusterRequest,
) -> None:
    if call.version >= 1 and request.endpoint_type != BROKERS:
        call.respond(
            DescribeClusterResponse(
                error_code=int(ErrorCode.INVALID_REQUEST),
                error_message="only endpoints of brokers (type 1) can be described",
            )
        )
        return
    cluster.when_known(lambda: call.respond(_description(cluster, call.connection.listener_name)))


def _description(cluster: ClusterForClients, listener: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(
        cluster_id=cluster.cluster_id,
        controller_id=cluster.metadata.controller_id,
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=b.broker_id, host=b.host, port=b.port, rack=b.rack
            )
            for b in cluster.brokers_at(listener)
        ],
    )
