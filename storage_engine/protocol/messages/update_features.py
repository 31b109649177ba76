"""UpdateFeatures, versions 0-2; written by `.ci/messages.py`."""

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


# Version 1 adds validate only field.
# Version 2 changes the response to not return feature level results.
@dataclass(slots=True, kw_only=True)
class UpdateFeaturesRequest:
    @dataclass(slots=True, kw_only=True)
    class FeatureUpdateKey:
        feature: str = string()
        max_version_level: int = int16()
        allow_downgrade: bool = boolean(0, 0)
        upgrade_type: int = int8(1, default=1)

    timeout_ms: int = int32(default=60000)
    feature_updates: Sequence[FeatureUpdateKey] = structs(FeatureUpdateKey)
    validate_only: bool = boolean(1)


@dataclass(slots=True, kw_only=True)
class UpdateFeaturesResponse:
    @dataclass(slots=True, kw_only=True)
    class UpdatableFeatureResult:
        feature: str = string()
        error_code: int = int16()
        error_message: str | None = nullable_string()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    results: Sequence[UpdatableFeatureResult] = structs(UpdatableFeatureResult, 0, 1)


API = api(57, UpdateFeaturesRequest, UpdateFeaturesResponse)
