"""Features as brokers of several versions tell them, and updates that the controller takes."""

import pytest

from storage_engine.client.admin.features import describe_features, update_features
from storage_engine.core.errors import ConfigError, ErrorCode, HeadraceError, KafkaError
from storage_engine.core.features import FeatureLevels, UpgradeType
from storage_engine.protocol.apis.api_versions import (
    ApiVersionsResponse,
    Feature,
    FinalizedFeature,
)
from storage_engine.protocol.messages.update_features import UpdateFeaturesResponse
from storage_engine.tests.client.fake_cluster import FakeCluster


def told(fake, supported, levels, epoch):
    """What a broker tells of features."""
    return ApiVersionsResponse(
        api_keys=ApiVersionsResponse.of(fake.api_versions).api_keys,
        supported_features=[
            Feature(name=name, min_version=low, max_version=high)
            for name, (low, high) in supported.items()
        ],
        finalized_features=[
            FinalizedFeature(name=name, min_version=level, max_version=level)
            for name, level in levels.items()
        ],
        finalized_features_epoch=epoch,
    )


@pytest.fixture
def brokers(fake: FakeCluster, monkeypatch):
    """Broker id -> its answer to ApiVersions."""
    answers: dict[int, ApiVersionsResponse] = {}
    respond = fake._respond

    def told_by(broker_id, api, message, forced):
        if api == "ApiVersions":
            # Kafka's brokers refuse a client that does not name itself.
            assert message.client_software_name
            assert message.client_software_version
        if api == "ApiVersions" and broker_id in answers:
            return answers[broker_id]
        return respond(broker_id, api, message, forced)

    monkeypatch.setattr(fake, "_respond", told_by)
    return answers


def test_brokers_that_are_upgraded_are_told_from_those_that_hold_a_feature_back(
    fake, cluster, brokers
):
    ids = sorted(fake.servers)
    new, old = ids[0], ids[-1]
    for broker in ids:
        brokers[broker] = told(fake, {"t": (2, 2), "g": (0, 3)}, {"t": 2, "g": 1}, 4)
    brokers[old] = told(fake, {"t": (2, 2)}, {"t": 2}, 0)
    states = describe_features(cluster)
    assert states.epoch == 4
    assert list(states.features) == ["g", "t"]
    groups = states.features["g"]
    assert (groups.level, groups.lowest, groups.highest, groups.held_back_by) == (1, 0, 0, (old,))
    assert groups.supported[new] == FeatureLevels(0, 3)
    assert groups.supported[old] == FeatureLevels(0, 0)
    transactions = states.features["t"]
    assert (transactions.level, transactions.highest, transactions.held_back_by) == (2, 2, ())


def test_a_cluster_that_names_no_broker_is_told_in_one_line(fake, cluster, monkeypatch):
    cluster.metadata([])
    monkeypatch.setattr(fake, "servers", {})
    with pytest.raises(HeadraceError, match="names no live broker at the moment"):
        describe_features(cluster)


def test_brokers_without_features_have_none(fake, cluster):
    states = describe_features(cluster)
    assert (states.epoch, states.features) == (-1, {})


@pytest.fixture
def updates(fake):
    """The updates that the controller was asked for; it answers with `fake.answer`."""
    asked = []
    fake.answer = UpdateFeaturesResponse(error_code=0, error_message=None, results=[])

    def answer(broker_id, _api, message):
        assert broker_id == fake.controller_id
        asked.append(message)
        return fake.answer

    fake.admin = answer
    return asked


@pytest.mark.parametrize("kind", [UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE])
def test_the_controller_is_asked_for_all_levels_at_once(cluster, updates, kind):
    update_features(cluster, {"a": 1, "b": 2}, upgrade_type=kind, validate_only=True)
    (message,) = updates
    rows = [(r.feature, r.max_version_level, r.upgrade_type) for r in message.feature_updates]
    assert rows == [("a", 1, kind), ("b", 2, kind)]
    assert message.validate_only


def test_a_refusal_is_raised_with_its_text(fake, cluster, updates):
    fake.answer.error_code = ErrorCode.INVALID_UPDATE_VERSION
    fake.answer.error_message = "a can't be set to level 1: broker 3 supports level 0 only"
    with pytest.raises(KafkaError, match="broker 3 supports") as failure:
        update_features(cluster, {"a": 1})
    assert failure.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert len(updates) == 1


def test_no_level_at_all_is_an_error_of_the_caller(cluster, updates):
    with pytest.raises(ConfigError, match="no feature is given"):
        update_features(cluster, {})
    assert updates == []
