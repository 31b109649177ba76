"""ListConfigResources: the names of what has settings.

Versions: 0 flexible, settings of client metrics only (KIP-714). 1 resource types (KIP-1142).

    ListConfigResourcesResponse(error_code=0, config_resources=[
        ListConfigResourcesResponse.ConfigResource(resource_name="t", resource_type=2)])

The attributes are those of Kafka's ListConfigResourcesRequest.json and
ListConfigResourcesResponse.json.
"""

from kafka.protocol.admin.configs import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "ListConfigResourcesRequest", "ListConfigResourcesResponse"]

API = kafka_python_api(74, ListConfigResourcesRequest, ListConfigResourcesResponse)
