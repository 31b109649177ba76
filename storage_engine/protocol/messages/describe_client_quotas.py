"""DescribeClientQuotas, versions 0-1; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    float64,
    int8,
    int16,
    int32,
    nullable_string,
    nullable_structs,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasRequest:
    @dataclass(slots=True, kw_only=True)
    class ComponentData:
        entity_type: str = string()
        match_type: int = int8()
        match: str | None = nullable_string()

    components: Sequence[ComponentData] = structs(ComponentData)
    strict: bool = boolean()


# Version 1 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class DescribeClientQuotasResponse:
    @dataclass(slots=True, kw_only=True)
    class EntryData:
        @dataclass(slots=True, kw_only=True)
        class EntityData:
            entity_type: str = string()
            entity_name: str | None = nullable_string()

        @dataclass(slots=True, kw_only=True)
        class ValueData:
            key: str = string()
            value: float = float64()

        entity: Sequence[EntityData] = structs(EntityData)
        values: Sequence[ValueData] = structs(ValueData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    entries: Sequence[EntryData] | None = nullable_structs(EntryData)


API = api(48, DescribeClientQuotasRequest, DescribeClientQuotasResponse)
