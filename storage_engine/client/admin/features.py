"""The levels of a cluster's features, as each of its brokers tells them; and how to change them.
Source: KIP-584."""

from collections.abc import Mapping
from dataclasses import dataclass

from storage_engine.client.admin.requests import (
    ask_controller,
    ask_each_broker,
    error_of,
    first_error,
)
from storage_engine.client.cluster import Cluster
from storage_engine.client.connection import versions_request
from storage_engine.core.errors import ConfigError, HeadraceError
from storage_engine.core.features import UNKNOWN_LEVELS, FeatureLevels, UpgradeType
from storage_engine.protocol.apis.api_versions import API as API_VERSIONS
from storage_engine.protocol.apis.api_versions import ApiVersionsResponse
from storage_engine.protocol.messages.update_features import API as UPDATE_FEATURES
from storage_engine.protocol.messages.update_features import UpdateFeaturesRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureState:
    """One feature of a cluster."""

    name: str
    level: int
    """The finalized level, which the cluster uses; 0 where there is none."""
    supported: Mapping[int, FeatureLevels]
    """The levels that each live broker supports, by its id."""

    @property
    def lowest(self) -> int:
        """The lowest level that all live brokers support."""
        return max(each.lowest for each in self.supported.values())

    @property
    def highest(self) -> int:
        """The highest level that all live brokers support."""
        return min(each.highest for each in self.supported.values())

    @property
    def held_back_by(self) -> tuple[int, ...]:
        """The brokers that support less than the highest level that another supports."""
        newest = max(each.highest for each in self.supported.values())
        return tuple(b for b, each in sorted(self.supported.items()) if each.highest < newest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFeatureStates:
    """The features of a cluster, by name."""

    epoch: int
    """The number of changes so far, as the broker knows it that knows most."""
    features: Mapping[str, FeatureState]


def describe_features(cluster: Cluster) -> ClusterFeatureStates:
    """Return the features that any live broker tells."""
    answers = dict(ask_each_broker(cluster, "features", API_VERSIONS, versions_request()))
    if not answers:
        raise HeadraceError(
            f"the cluster of {cluster.bootstrap_servers} names no live broker at the moment; try "
            "again"
        )
    newest = max(answers.values(), key=lambda answer: answer.finalized_features_epoch)
    levels = {each.name: each.max_version for each in newest.finalized_features}
    supported = {broker: _supported(answer) for broker, answer in answers.items()}
    names = sorted({*levels, *(name for each in supported.values() for name in each)})
    return ClusterFeatureStates(
        epoch=newest.finalized_features_epoch,
        features={
            name: FeatureState(
                name=name,
                level=levels.get(name, 0),
                supported={
                    broker: each.get(name, UNKNOWN_LEVELS) for broker, each in supported.items()
                },
            )
            for name in names
        },
    )


def _supported(answer: ApiVersionsResponse) -> dict[str, FeatureLevels]:
    return {
        each.name: FeatureLevels(each.min_version, each.max_version)
        for each in answer.supported_features
    }


def update_features(
    cluster: Cluster,
    levels: Mapping[str, int],
    *,
    upgrade_type: UpgradeType = UpgradeType.UPGRADE,
    validate_only: bool = False,
) -> None:
    """Set features to these levels, all or none; with `validate_only`, only check whether that can
    be done. KafkaError INVALID_UPDATE_VERSION with the reason where it can't."""
    if not levels:
        raise ConfigError("no feature is given: name one or more, with their levels")
    row = UpdateFeaturesRequest.FeatureUpdateKey
    message = UpdateFeaturesRequest(
        timeout_ms=cluster.request_timeout_ms,
        feature_updates=[
            row(
                feature=name,
                max_version_level=level,
                allow_downgrade=upgrade_type is not UpgradeType.UPGRADE,
                upgrade_type=int(upgrade_type),
            )
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    ask_controller(
        cluster,
        UPDATE_FEATURES,
        message,
        lambda answer: error_of(answer) or first_error(answer.results),
    )
