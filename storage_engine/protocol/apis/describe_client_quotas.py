"""DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546).

    request.components: entity_type, match_type (0 exact, 1 default, 2 any), match; strict
    response.entries: entity (entity_type, entity_name or None for the default), values (key, value)

Versions: 0, and 1 flexible. The attributes are those of Kafka's DescribeClientQuotasRequest.json
and DescribeClientQuotasResponse.json.
"""

from kafka.protocol.admin.client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeClientQuotasRequest", "DescribeClientQuotasResponse"]

API = kafka_python_api(48, DescribeClientQuotasRequest, DescribeClientQuotasResponse)
