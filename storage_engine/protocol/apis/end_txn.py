"""EndTxn: a producer commits or aborts its transaction.

Versions: 2 the error PRODUCER_FENCED. 3 flexible. 4 the error TRANSACTION_ABORTABLE. 5 the epoch is
raised, and the answer has the producer id and epoch to go on with (KIP-890). The attributes are
those of Kafka's EndTxnRequest.json and EndTxnResponse.json.
"""

from kafka.protocol.producer.transaction import EndTxnRequest, EndTxnResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "EndTxnRequest", "EndTxnResponse"]

API = kafka_python_api(26, EndTxnRequest, EndTxnResponse)
