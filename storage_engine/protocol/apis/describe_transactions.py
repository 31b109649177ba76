"""DescribeTransactions: the state of transactional ids, from their coordinator (KIP-664).

Versions: 0 flexible. The attributes are those of Kafka's DescribeTransactionsRequest.json and
DescribeTransactionsResponse.json.
"""

from kafka.protocol.admin.transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeTransactionsRequest", "DescribeTransactionsResponse"]

API = kafka_python_api(65, DescribeTransactionsRequest, DescribeTransactionsResponse)
