"""DescribeCluster, versions 0-1; written by `.ci/messages.py`."""

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


# Version 1 adds EndpointType for KIP-919 support.
# Version 2 adds IncludeFencedBrokers for KIP-1073 support.
@dataclass(slots=True, kw_only=True)
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(1, default=1)


# Version 1 adds the EndpointType field, and makes MISMATCHED_ENDPOINT_TYPE and
# UNSUPPORTED_ENDPOINT_TYPE valid top-level response error codes.
# Version 2 adds IsFenced field to Brokers for KIP-1073 support.
@dataclass(slots=True, kw_only=True)
class DescribeClusterResponse:
    @dataclass(slots=True, kw_only=True)
    class DescribeClusterBroker:
        broker_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = nullable_string(default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    endpoint_type: int = int8(1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: Sequence[DescribeClusterBroker] = structs(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)


API = api(60, DescribeClusterRequest, DescribeClusterResponse)
