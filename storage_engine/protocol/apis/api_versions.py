"""ApiVersions: which versions of which APIs a broker serves. The first request of every connection.

Versions: 1 throttle time. 3 flexible, client software name and version, features in tagged fields
(KIP-511, KIP-584). 4 supported features whose lowest level is 0, which earlier clients can't read
(KAFKA-17011): they are left out for them.

A client may ask with a version that the broker does not know yet, so that answer is error 35 in the
form of version 0, with ApiVersions' own range only; therefore the header of the response is never
flexible, and a response with an error is read as version 0 when it does not fit its own version.
Source: KIP-511.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from storage_engine.core.errors import ErrorCode, InvalidRequestError
from storage_engine.protocol.apis.fields import int16, int32, int64, string, structs
from storage_engine.protocol.apis.spec import MAX_ITEMS, VersionRange
from storage_engine.protocol.apis.struct_codec import api

NO_FEATURES_EPOCH = -1

FIRST_WITH_LEVEL_0 = 4
"""The first version whose clients can read that the lowest level of a feature is 0."""

FIRST_ASKED = 3
"""The version with which our clients begin: brokers before Kafka 4 don't know a later one, and
tell by it all but the levels of features."""

_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """The software of the client; empty before version 3."""

    client_software_name: str = string(3)
    client_software_version: str = string(3)


@dataclass(frozen=True, slots=True)
class ApiVersion:
    """The versions of one API, both ends inclusive."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """The levels of one feature, both ends inclusive."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalizedFeature:
    """The finalized levels of one feature; the maximum comes first on the wire."""

    name: str = string()
    max_version: int = int16()
    min_version: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """Answer to an ApiVersionsRequest. The features travel from version 3 on."""

    error_code: int = int16()
    api_keys: Sequence[ApiVersion] = structs(ApiVersion)
    throttle_time_ms: int = int32(1)
    supported_features: Sequence[Feature] = structs(Feature, 3, tag=0)
    finalized_features_epoch: int = int64(3, default=NO_FEATURES_EPOCH, tag=1)
    finalized_features: Sequence[FinalizedFeature] = structs(FinalizedFeature, 3, tag=2)

    @classmethod
    def of(cls, ranges: Mapping[int, VersionRange]) -> "ApiVersionsResponse":
        """Return the answer that advertises `ranges`, api key -> versions."""
        return cls(api_keys=[ApiVersion(key, *ranges[key]) for key in sorted(ranges)])

    def ranges(self) -> dict[int, VersionRange]:
        return {
            api.api_key: VersionRange(api.min_version, api.max_version) for api in self.api_keys
        }


def unsupported_version_response() -> ApiVersionsResponse:
    """Return the answer to an ApiVersions request of an unknown version; encode it with version
    0."""
    own = ApiVersion(API.key, API.min_version, API.max_version)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])


def _decode_response(
    version: int, body: memoryview, most_items: int = MAX_ITEMS, /
) -> ApiVersionsResponse:
    """Decode a response; one with UNSUPPORTED_VERSION may have any form, and the caller asks again,
    with version 0 if it has no `api_keys`."""
    try:
        return _API.decode_response(version, body, most_items)
    except InvalidRequestError:
        if bytes(body[:2]) != _UNSUPPORTED_VERSION:
            raise
    try:
        return _API.decode_response(0, body)
    except InvalidRequestError:
        # The mock cluster of librdkafka answers in a form that belongs to no version.
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


_API = api(18, ApiVersionsRequest, ApiVersionsResponse)
API = replace(_API, decode_response=_decode_response)
