"""DescribeCluster: cluster id, controller and live brokers. Source: KIP-700."""

from typing import Any

from storage_engine.broker.handlers.context import BrokerContext, Call
from storage_engine.broker.handlers.controller.when_told import when_told
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.describe_cluster import DescribeClusterResponse

BROKERS = 1
"""The kind of endpoint that is served; Kafka's other kind, KRaft controllers, does not exist
here."""


def handle(context: BrokerContext, call: Call, request: Any) -> None:
    if call.version >= 1 and request.endpoint_type != BROKERS:
        call.respond(
            DescribeClusterResponse(
                error_code=int(ErrorCode.INVALID_REQUEST),
                error_message="only endpoints of brokers (type 1) can be described",
            )
        )
        return
    when_told(context, lambda: _respond(context, call))


def _respond(context: BrokerContext, call: Call) -> None:
    metadata = context.metadata
    call.respond(
        DescribeClusterResponse(
            cluster_id=context.cluster_id,
            controller_id=metadata.controller_id,
            brokers=[
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=b.broker_id, host=b.host, port=b.port, rack=b.rack
                )
                for b in context.brokers
            ],
        )
    )
