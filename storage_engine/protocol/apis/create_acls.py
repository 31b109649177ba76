"""CreateAcls: adds access rules.

Versions: 1 pattern types (KIP-290). 2 flexible. 3 resources of type User, of which there are no
rules here. The numbers are those of `core.security.acl_types`. Results are in the order of the
request. The attributes are those of Kafka's CreateAclsRequest.json and CreateAclsResponse.json.
"""

from kafka.protocol.admin.acl import (
    CreateAclsRequest,
    CreateAclsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "CreateAclsRequest", "CreateAclsResponse"]

API = kafka_python_api(30, CreateAclsRequest, CreateAclsResponse)
