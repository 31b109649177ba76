"""DescribeGroups: members and state of groups.

Versions: 4 instance ids. 5 flexible. The attributes are those of Kafka's
DescribeGroupsRequest.json and DescribeGroupsResponse.json.
"""

from kafka.protocol.admin.groups import DescribeGroupsRequest, DescribeGroupsResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeGroupsRequest", "DescribeGroupsResponse"]

API = kafka_python_api(15, DescribeGroupsRequest, DescribeGroupsResponse)
