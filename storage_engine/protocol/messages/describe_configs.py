"""DescribeConfigs, versions 1-4; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    int8,
    int16,
    int32,
    nullable_string,
    nullable_strings,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 adds IncludeSynonyms and removes IsDefault.
# Version 2 is the same as version 1.
# Version 4 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class DescribeConfigsRequest:
    @dataclass(slots=True, kw_only=True)
    class DescribeConfigsResource:
        resource_type: int = int8()
        resource_name: str = string()
        configuration_keys: Sequence[str] | None = nullable_strings()

    resources: Sequence[DescribeConfigsResource] = structs(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(3)


# Version 0 was removed in Apache Kafka 4.0, Version 1 is the new baseline.
# Version 1 adds ConfigSource and the synonyms.
# Starting in version 2, on quota violation, brokers send out responses before throttling.
# Version 4 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class DescribeConfigsResponse:
    @dataclass(slots=True, kw_only=True)
    class DescribeConfigsResult:
        @dataclass(slots=True, kw_only=True)
        class DescribeConfigsResourceResult:
            @dataclass(slots=True, kw_only=True)
            class DescribeConfigsSynonym:
                name: str = string()
                value: str | None = nullable_string()
                source: int = int8()

            name: str = string()
            value: str | None = nullable_string()
            read_only: bool = boolean()
            config_source: int = int8(default=-1)
            is_sensitive: bool = boolean()
            synonyms: Sequence[DescribeConfigsSynonym] = structs(DescribeConfigsSynonym)
            config_type: int = int8(3)
            documentation: str | None = nullable_string(3)

        error_code: int = int16()
        error_message: str | None = nullable_string()
        resource_type: int = int8()
        resource_name: str = string()
        configs: Sequence[DescribeConfigsResourceResult] = structs(DescribeConfigsResourceResult)

    throttle_time_ms: int = int32()
    results: Sequence[DescribeConfigsResult] = structs(DescribeConfigsResult)


API = api(32, DescribeConfigsRequest, DescribeConfigsResponse)
