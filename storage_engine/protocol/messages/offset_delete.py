"""OffsetDelete, versions 0-0; written by `.ci/messages.py`."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, string, structs
from storage_engine.protocol.apis.struct_codec import api


@dataclass(slots=True, kw_only=True)
class OffsetDeleteRequest:
    @dataclass(slots=True, kw_only=True)
    class OffsetDeleteRequestTopic:
        @dataclass(slots=True, kw_only=True)
        class OffsetDeleteRequestPartition:
            partition_index: int = int32()

        name: str = string()
        partitions: Sequence[OffsetDeleteRequestPartition] = structs(OffsetDeleteRequestPartition)

    group_id: str = string()
    topics: Sequence[OffsetDeleteRequestTopic] = structs(OffsetDeleteRequestTopic)


@dataclass(slots=True, kw_only=True)
class OffsetDeleteResponse:
    @dataclass(slots=True, kw_only=True)
    class OffsetDeleteResponseTopic:
        @dataclass(slots=True, kw_only=True)
        class OffsetDeleteResponsePartition:
            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: Sequence[OffsetDeleteResponsePartition] = structs(OffsetDeleteResponsePartition)

    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: Sequence[OffsetDeleteResponseTopic] = structs(OffsetDeleteResponseTopic)


API = api(47, OffsetDeleteRequest, OffsetDeleteResponse)
