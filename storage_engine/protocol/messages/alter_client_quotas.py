"""AlterClientQuotas, versions 0-1; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import (
    boolean,
    float64,
    int16,
    int32,
    nullable_string,
    string,
    structs,
)
from storage_engine.protocol.apis.struct_codec import api


# Version 1 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class AlterClientQuotasRequest:
    @dataclass(slots=True, kw_only=True)
    class EntryData:
        @dataclass(slots=True, kw_only=True)
        class EntityData:
            entity_type: str = string()
            entity_name: str | None = nullable_string()

        @dataclass(slots=True, kw_only=True)
        class OpData:
            key: str = string()
            value: float = float64()
            remove: bool = boolean()

        entity: Sequence[EntityData] = structs(EntityData)
        ops: Sequence[OpData] = structs(OpData)

    entries: Sequence[EntryData] = structs(EntryData)
    validate_only: bool = boolean()


# Version 1 enables flexible versions.
@dataclass(slots=True, kw_only=True)
class AlterClientQuotasResponse:
    @dataclass(slots=True, kw_only=True)
    class EntryData:
        @dataclass(slots=True, kw_only=True)
        class EntityData:
            entity_type: str = string()
            entity_name: str | None = nullable_string()

        error_code: int = int16()
        error_message: str | None = nullable_string()
        entity: Sequence[EntityData] = structs(EntityData)

    throttle_time_ms: int = int32()
    entries: Sequence[EntryData] = structs(EntryData)


API = api(49, AlterClientQuotasRequest, AlterClientQuotasResponse)
