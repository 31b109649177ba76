"""TxnOffsetCommit: commits offsets of a group as part of a transaction.

Versions: 2 leader epoch. 3 flexible, member and generation (KIP-447). 4 the error
TRANSACTION_ABORTABLE, 5 the group's coordinator enlists its offsets in the transaction (KIP-890).
The attributes are those of Kafka's TxnOffsetCommitRequest.json and TxnOffsetCommitResponse.json.
"""

from kafka.protocol.producer.transaction import TxnOffsetCommitRequest, TxnOffsetCommitResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "TxnOffsetCommitRequest", "TxnOffsetCommitResponse"]

API = kafka_python_api(28, TxnOffsetCommitRequest, TxnOffsetCommitResponse)
