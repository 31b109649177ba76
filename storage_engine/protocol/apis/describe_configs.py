"""DescribeConfigs: the settings of topics (resource type 2) and brokers (4).

Versions: 1 synonyms and sources. 3 types and documentation. 4 flexible.

    request.resources: resource_type, resource_name, configuration_keys (None for all)
    request.include_synonyms, request.include_documentation
    Result = DescribeConfigsResponse.DescribeConfigsResult
    DescribeConfigsResponse(results=[Result(
        error_code=0, error_message=None, resource_type=2, resource_name="t",
        configs=[Result.DescribeConfigsResourceResult(
            name="k", value="v", read_only=False, config_source=5, is_sensitive=False,
            synonyms=[], config_type=3, documentation=None)])])

Config sources: 1 topic, 2 this broker at run time, 3 all brokers at run time, 4 the broker's file,
5 default. Config types: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class,
9 password. The attributes are those of Kafka's DescribeConfigsRequest.json and
DescribeConfigsResponse.json.
"""

from kafka.protocol.admin.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeConfigsRequest", "DescribeConfigsResponse"]

API = kafka_python_api(32, DescribeConfigsRequest, DescribeConfigsResponse)
