"""IncrementalAlterConfigs, versions 0-1; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    int8,
    int16,
    int32,
    nullable_string,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsRequest:
    @dataclass(slots=True, kw_only=True)
    class AlterConfigsResource:
        @dataclass(slots=True, kw_only=True)
        class AlterableConfig:
            name: str = string()
            config_operation: int = int8()
            value: str | None = nullable_string()

        resource_type: int = int8()
        resource_name: str = string()
        configs: Sequence[AlterableConfig] = structs(AlterableConfig)

    resources: Sequence[AlterConfigsResource] = structs(AlterConfigsResource)
    validate_only: bool = boolean()


# Version 1 is the first flexible version.
@dataclass(slots=True, kw_only=True)
class IncrementalAlterConfigsResponse:
    @dataclass(slots=True, kw_only=True)
    class AlterConfigsResourceResponse:
        error_code: int = int16()
        error_message: str | None = nullable_string()
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: Sequence[AlterConfigsResourceResponse] = structs(AlterConfigsResourceResponse)


API = api(44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
