"""ListConfigResources, versions 0-1; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int8, int8s, int16, int32, string, structs
from storage_engine.protocol.apis.struct_codec import api


# Version 0 is used as ListClientMetricsResourcesRequest which only lists client metrics resources.
# Version 1 adds ResourceTypes field (KIP-1142). If there is no specified ResourceTypes, it should
# return all configuration resources.
@dataclass(slots=True, kw_only=True)
class ListConfigResourcesRequest:
    resource_types: Sequence[int] = int8s(1)


# Version 0 is used as ListClientMetricsResourcesResponse which returns all client metrics
# resources.
# Version 1 adds ResourceType to ConfigResources (KIP-1142).
@dataclass(slots=True, kw_only=True)
class ListConfigResourcesResponse:
    @dataclass(slots=True, kw_only=True)
    class ConfigResource:
        resource_name: str = string()
        resource_type: int = int8(1, default=16)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: Sequence[ConfigResource] = structs(ConfigResource)


API = api(74, ListConfigResourcesRequest, ListConfigResourcesResponse)
