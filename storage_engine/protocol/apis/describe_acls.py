"""DescribeAcls: the access rules that a filter finds.

Versions: 1 pattern types (KIP-290). 2 flexible. 3 resources of type User, of which there are no
rules here. The numbers are those of `core.security.acl_types`, and 1 for any. The attributes are
those of Kafka's DescribeAclsRequest.json and DescribeAclsResponse.json.
"""

from kafka.protocol.admin.acl import (
    DescribeAclsRequest,
    DescribeAclsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeAclsRequest", "DescribeAclsResponse"]

API = kafka_python_api(29, DescribeAclsRequest, DescribeAclsResponse)
