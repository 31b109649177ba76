"""ApiVersions: which versions of which APIs a broker serves. The first request of every connection.

Versions: 1 throttle time. 3 flexible, client software name and version, features in tagged fields
(KIP-511, KIP-584).

A client may ask with a version that the broker does not know yet, so that answer is error 35 in the
form of version 0, with ApiVersions' own range only; therefore the header of the response is never
flexible, and a response with an error is read as version 0 when it does not fit its own version.
Source: KIP-511.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from storage_engine.core.errors import ErrorCode, InvalidRequestError
from storage_engine.protocol.apis.spec import ApiSpec, Buffer, VersionRange
from storage_engine.protocol.apis.wire import Reader, Writer, decode_leniently, decode_with

FIRST_FLEXIBLE = 3
NO_FEATURES_EPOCH = -1

_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")
_SUPPORTED_FEATURES_TAG = 0
_FEATURES_EPOCH_TAG = 1
_FINALIZED_FEATURES_TAG = 2
_REMEMBERED_BYTES = 4096
"""Longer answers are decoded each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsRequest:
    """The software of the client; empty before version 3."""

    client_software_name: str = ""
    client_software_version: str = ""


class ApiVersion(NamedTuple):
    """The versions of one API, both ends inclusive."""

    api_key: int
    min_version: int
    max_version: int


class Feature(NamedTuple):
    """The levels of one feature, both ends inclusive."""

    name: str
    min_version: int
    max_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiVersionsResponse:
    """Answer to an ApiVersionsRequest. The features travel in version 3."""

    error_code: int = 0
    api_keys: Sequence[ApiVersion] = ()
    throttle_time_ms: int = 0
    supported_features: Sequence[Feature] = ()
    finalized_features: Sequence[Feature] = ()
    finalized_features_epoch: int = NO_FEATURES_EPOCH

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


def decode_request(version: int, body: memoryview) -> ApiVersionsRequest:
    return decode_with(
        f"ApiVersions request of version {version}", body, version >= FIRST_FLEXIBLE, _read_request
    )


def _read_request(reader: Reader) -> ApiVersionsRequest:
    if not reader.flexible:
        return ApiVersionsRequest()
    name, software_version = reader.string(), reader.string()
    reader.tags()
    return ApiVersionsRequest(client_software_name=name, client_software_version=software_version)


def encode_request(version: int, request: ApiVersionsRequest) -> list[Buffer]:
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    if version >= 3:
        writer.string(request.client_software_name)
        writer.string(request.client_software_version)
    writer.tags()
    return [writer.data]


def encode_response(version: int, response: ApiVersionsResponse) -> list[Buffer]:
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    writer.int16(response.error_code)
    writer.count(len(response.api_keys))
    for api in response.api_keys:
        writer.int16(api.api_key)
        writer.int16(api.min_version)
        writer.int16(api.max_version)
        writer.tags()
    if version >= 1:
        writer.int32(response.throttle_time_ms)
    if version >= 3:
        writer.tags(_feature_tags(response))
    return [writer.data]


def _feature_tags(response: ApiVersionsResponse) -> list[tuple[int, bytes]]:
    tags = []
    if response.supported_features:
        supported = [(f.name, f.min_version, f.max_version) for f in response.supported_features]
        tags.append((_SUPPORTED_FEATURES_TAG, _features(supported)))
    if response.finalized_features_epoch != NO_FEATURES_EPOCH:
        epoch = Writer(flexible=True)
        epoch.int64(response.finalized_features_epoch)
        tags.append((_FEATURES_EPOCH_TAG, bytes(epoch.data)))
    if response.finalized_features:
        # the maximum comes first here, unlike in the supported features
        finalized = [(f.name, f.max_version, f.min_version) for f in response.finalized_features]
        tags.append((_FINALIZED_FEATURES_TAG, _features(finalized)))
    return tags


def _features(features: Sequence[tuple[str, int, int]]) -> bytes:
    writer = Writer(flexible=True)
    writer.count(len(features))
    for name, first, second in features:
        writer.string(name)
        writer.int16(first)
        writer.int16(second)
        writer.tags()
    return bytes(writer.data)


def decode_response(version: int, body: memoryview) -> ApiVersionsResponse:
    """Decode a response; one with UNSUPPORTED_VERSION may have any form, and the caller asks again,
    with version 0 if it has no `api_keys`.

    The same bytes give the same object, which is not to be changed: each connection to each broker
    begins with them.
    """
    try:
        if len(body) <= _REMEMBERED_BYTES:
            return _remembered(version, bytes(body))
        return _decode_response_as(version, body)
    except InvalidRequestError:
        if bytes(body[:2]) != _UNSUPPORTED_VERSION:
            raise
    try:
        return _decode_response_as(0, body)
    except InvalidRequestError:
        # The mock cluster of librdkafka answers in a form that belongs to no version.
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)


@lru_cache(maxsize=32)
def _remembered(version: int, body: bytes) -> ApiVersionsResponse:
    return _decode_response_as(version, memoryview(body))


def _decode_response_as(version: int, body: memoryview) -> ApiVersionsResponse:
    return decode_leniently(
        f"ApiVersions response of version {version}",
        body,
        version >= FIRST_FLEXIBLE,
        lambda reader: _read_response(reader, version),
    )


def _read_response(reader: Reader, version: int) -> ApiVersionsResponse:
    error_code = reader.int16()
    api_keys = reader.array(6, lambda: _read_api_version(reader))
    throttle_time_ms = reader.int32() if version >= 1 else 0
    tags = reader.tags()
    supported: list[Feature] = []
    finalized: list[Feature] = []
    epoch = NO_FEATURES_EPOCH
    if (tag := tags.get(_SUPPORTED_FEATURES_TAG)) is not None:
        supported = [Feature(name, low, high) for name, low, high in _read_features(tag)]
    if (tag := tags.get(_FEATURES_EPOCH_TAG)) is not None:
        epoch = Reader(tag, flexible=True).int64()
    if (tag := tags.get(_FINALIZED_FEATURES_TAG)) is not None:
        finalized = [Feature(name, low, high) for name, high, low in _read_features(tag)]
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=api_keys,
        throttle_time_ms=throttle_time_ms,
        supported_features=supported,
        finalized_features=finalized,
        finalized_features_epoch=epoch,
    )


def _read_api_version(reader: Reader) -> ApiVersion:
    api = ApiVersion(reader.int16(), reader.int16(), reader.int16())
    reader.tags()
    return api


def _read_features(tag: memoryview) -> list[tuple[str, int, int]]:
    reader = Reader(tag, flexible=True)
    features = reader.array(6, lambda: _read_feature(reader))
    reader.finish()
    return features


def _read_feature(reader: Reader) -> tuple[str, int, int]:
    feature = reader.string(), reader.int16(), reader.int16()
    reader.tags()
    return feature


API = ApiSpec(
    key=18,
    name="ApiVersions",
    min_version=0,
    max_version=3,
    first_flexible_version=FIRST_FLEXIBLE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
