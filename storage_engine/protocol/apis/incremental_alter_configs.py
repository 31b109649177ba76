"""IncrementalAlterConfigs: changes single settings of topics (resource type 2) and brokers (4).

Versions: 1 flexible.

    request.resources: resource_type, resource_name, configs (name, config_operation, value)
    request.validate_only
    IncrementalAlterConfigsResponse(responses=[
        IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            error_code=0, error_message=None, resource_type=2, resource_name="t")])

Operations: 0 set, 1 delete, 2 append to a list, 3 take from a list. The attributes are those of
Kafka's IncrementalAlterConfigsRequest.json and IncrementalAlterConfigsResponse.json.
"""

from kafka.protocol.admin.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "IncrementalAlterConfigsRequest", "IncrementalAlterConfigsResponse"]

API = kafka_python_api(44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
