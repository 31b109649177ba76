"""DeleteAcls: removes the access rules that filters find.

Versions: 1 pattern types (KIP-290). 2 flexible. 3 resources of type User, of which there are no
rules here. The numbers are those of `core.security.acl_types`, and 1 for any. Results are in the
order of the request. The attributes are those of Kafka's DeleteAclsRequest.json and
DeleteAclsResponse.json.
"""

from kafka.protocol.admin.acl import (
    DeleteAclsRequest,
    DeleteAclsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DeleteAclsRequest", "DeleteAclsResponse"]

API = kafka_python_api(31, DeleteAclsRequest, DeleteAclsResponse)
