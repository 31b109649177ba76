"""AlterConfigs: replaces all settings of topics (resource type 2) and brokers (4).

Versions: 2 flexible.

    request.resources: resource_type, resource_name, configs (name, value); request.validate_only
    AlterConfigsResponse(responses=[AlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=0, error_message=None, resource_type=2, resource_name="t")])

The attributes are those of Kafka's AlterConfigsRequest.json and AlterConfigsResponse.json.
"""

from kafka.protocol.admin.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "AlterConfigsRequest", "AlterConfigsResponse"]

API = kafka_python_api(33, AlterConfigsRequest, AlterConfigsResponse)
