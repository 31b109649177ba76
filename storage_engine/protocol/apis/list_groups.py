"""ListGroups: the groups that a broker coordinates.

Versions: 3 flexible. 4 filter by state (KIP-518). 5 by type (KIP-848). The attributes are those of
Kafka's ListGroupsRequest.json and ListGroupsResponse.json.
"""

from kafka.protocol.admin.groups import ListGroupsRequest, ListGroupsResponse

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "ListGroupsRequest", "ListGroupsResponse"]

API = kafka_python_api(16, ListGroupsRequest, ListGroupsResponse)
