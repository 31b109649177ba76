"""DescribeProducers: the producers that a partition's leader remembers (KIP-664).

Versions: 0 flexible. The attributes are those of Kafka's DescribeProducersRequest.json and
DescribeProducersResponse.json.
"""

from kafka.protocol.admin.transactions import DescribeProducersRequest, DescribeProducersResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeProducersRequest", "DescribeProducersResponse"]

API = kafka_python_api(61, DescribeProducersRequest, DescribeProducersResponse)
