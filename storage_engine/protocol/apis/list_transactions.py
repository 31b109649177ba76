"""ListTransactions: the transactional ids that a broker coordinates (KIP-664).

Versions: 0 flexible. 1 a filter by duration (KIP-994). The attributes are those of Kafka's
ListTransactionsRequest.json and ListTransactionsResponse.json.
"""

from kafka.protocol.admin.transactions import ListTransactionsRequest, ListTransactionsResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "ListTransactionsRequest", "ListTransactionsResponse"]

API = kafka_python_api(66, ListTransactionsRequest, ListTransactionsResponse)
