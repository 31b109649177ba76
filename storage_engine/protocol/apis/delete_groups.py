"""DeleteGroups: deletes groups without members (KIP-229).

Versions: 2 flexible. The attributes are those of Kafka's
DeleteGroupsRequest.json and DeleteGroupsResponse.json.
"""

from kafka.protocol.admin.groups import DeleteGroupsRequest, DeleteGroupsResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DeleteGroupsRequest", "DeleteGroupsResponse"]

API = kafka_python_api(42, DeleteGroupsRequest, DeleteGroupsResponse)
