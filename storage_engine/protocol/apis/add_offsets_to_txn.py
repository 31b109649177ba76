"""AddOffsetsToTxn: a producer enlists the offsets of a group in its transaction.

Versions: 2 the error PRODUCER_FENCED. 3 flexible. 4 the error TRANSACTION_ABORTABLE (KIP-890). The
attributes are those of Kafka's AddOffsetsToTxnRequest.json and AddOffsetsToTxnResponse.json.
"""

from kafka.protocol.producer.transaction import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "AddOffsetsToTxnRequest", "AddOffsetsToTxnResponse"]

API = kafka_python_api(25, AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
