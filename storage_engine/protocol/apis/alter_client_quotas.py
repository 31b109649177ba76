"""AlterClientQuotas: sets and removes quotas of users, client ids and addresses (KIP-546).

    request.entries: entity (entity_type, entity_name or None for the default), ops (key, value,
        remove); validate_only
    response.entries: error_code, error_message, entity

Versions: 0, and 1 flexible. The attributes are those of Kafka's AlterClientQuotasRequest.json and
AlterClientQuotasResponse.json.
"""

from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "AlterClientQuotasRequest", "AlterClientQuotasResponse"]

API = kafka_python_api(49, AlterClientQuotasRequest, AlterClientQuotasResponse)
