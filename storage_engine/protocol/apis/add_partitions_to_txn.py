"""AddPartitionsToTxn: a producer enlists partitions in its transaction, or a broker asks whether
they are enlisted.

Versions: 2 the error PRODUCER_FENCED. 3 flexible. 4 between brokers: many transactions at once
(`transactions`), `verify_only` (KIP-890). 5 the error TRANSACTION_ABORTABLE. Clients use 0-3, whose
fields are `v3_and_below_...`. The attributes are those of Kafka's AddPartitionsToTxnRequest.json
and AddPartitionsToTxnResponse.json.
"""

from kafka.protocol.producer.transaction import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "AddPartitionsToTxnRequest", "AddPartitionsToTxnResponse"]

API = kafka_python_api(24, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
