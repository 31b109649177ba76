"""DescribeCluster: cluster id, controller and brokers (KIP-700).

Versions: 0 flexible. 1 kind of endpoint (1 brokers, 2 controllers).

    DescribeClusterResponse(error_code=0, error_message=None, endpoint_type=1, cluster_id="c",
        controller_id=1, brokers=[DescribeClusterResponse.DescribeClusterBroker(
            broker_id=1, host="h", port=9092, rack=None)], authorized_operations=None)

The attributes are those of Kafka's DescribeClusterRequest.json and DescribeClusterResponse.json,
but `authorized_operations` is a set of bits, or None when they were not asked for.
"""

from kafka.protocol.admin.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeClusterRequest", "DescribeClusterResponse"]

API = kafka_python_api(60, DescribeClusterRequest, DescribeClusterResponse)
