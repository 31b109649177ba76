"""WriteTxnMarkers: a transaction coordinator has partition leaders write the ends of transactions.

Versions: 1 flexible; 2 with the transaction version (KIP-1228); 0 went with Kafka 4. The attributes
are those of Kafka's WriteTxnMarkersRequest.json and WriteTxnMarkersResponse.json; KIP-98.
"""

from kafka.protocol.producer.transaction import WriteTxnMarkersRequest, WriteTxnMarkersResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "WriteTxnMarkersRequest", "WriteTxnMarkersResponse"]

API = kafka_python_api(27, WriteTxnMarkersRequest, WriteTxnMarkersResponse)
