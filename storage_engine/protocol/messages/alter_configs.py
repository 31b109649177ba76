"""AlterConfigs, versions 0-2; written by `.ci/messages.py`."""

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


# Version 1 is the same as version 0.
# Version 2 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class AlterConfigsRequest:
    @dataclass(slots=True, kw_only=True)
    class AlterConfigsResource:
        @dataclass(slots=True, kw_only=True)
        class AlterableConfig:
            name: str = string()
            value: str | None = nullable_string()

        resource_type: int = int8()
        resource_name: str = string()
        configs: Sequence[AlterableConfig] = structs(AlterableConfig)

    resources: Sequence[AlterConfigsResource] = structs(AlterConfigsResource)
    validate_only: bool = boolean()


# Starting in version 1, on quota violation brokers send out responses before throttling.
# Version 2 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class AlterConfigsResponse:
    @dataclass(slots=True, kw_only=True)
    class AlterConfigsResourceResponse:
        error_code: int = int16()
        error_message: str | None = nullable_string()
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: Sequence[AlterConfigsResourceResponse] = structs(AlterConfigsResourceResponse)


API = api(33, AlterConfigsRequest, AlterConfigsResponse)
