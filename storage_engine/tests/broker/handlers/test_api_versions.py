"""What a broker tells of the features: supported levels, those that the cluster uses, and the APIs
that need one (KIP-584)."""

import pytest

from storage_engine.broker.handlers.api_call import HandlerTable
from storage_engine.broker.handlers.api_versions import ApiVersionsHandler
from storage_engine.core.features import (
    FIRST_FEATURES,
    GROUP_VERSION,
    TRANSACTION_VERSION,
    FinalizedFeatures,
)
from storage_engine.protocol.apis import registry
from storage_engine.protocol.apis.registry import APIS, FeatureNeed, spec_for

RAISED = FinalizedFeatures({TRANSACTION_VERSION: 2, GROUP_VERSION: 1}, 7)
NEEDY, PLAIN = 74, 75


class Call:
    """A client's request; keeps its answer."""

    def __init__(self, version):
        self.version = version

    def respond(self, answer):
        self.answer = answer


class Broker:
    """A broker whose cluster uses some levels."""

    def __init__(self):
        self.finalized = FIRST_FEATURES
        table = HandlerTable()
        for key in (NEEDY, PLAIN):
            table.add(spec_for(key), lambda call, request: None)
        self.handler = ApiVersionsHandler(table, lambda: self.finalized)

    def told(self, version=4):
        call = Call(version)
        self.handler.handle(call, None)
        return call.answer


@pytest.fixture
def broker(monkeypatch):
    need = FeatureNeed(GROUP_VERSION, 1)
    monkeypatch.setattr(registry, "APIS", {**APIS, NEEDY: APIS[NEEDY]._replace(need=need)})
    return Broker()


def levels(features):
    return {each.name: (each.min_version, each.max_version) for each in features}


def test_supported_and_used_levels_are_told_with_the_epoch(broker):
    broker.finalized = RAISED
    told = broker.told()
    assert levels(told.supported_features) == {GROUP_VERSION: (0, 1), TRANSACTION_VERSION: (2, 2)}
    assert levels(told.finalized_features) == {GROUP_VERSION: (1, 1), TRANSACTION_VERSION: (2, 2)}
    assert told.finalized_features_epoch == 7


def test_a_feature_at_level_0_is_not_told_as_used(broker):
    assert levels(broker.told().finalized_features) == {TRANSACTION_VERSION: (2, 2)}


def test_a_level_0_is_not_told_to_clients_that_can_not_read_it(broker):
    broker.finalized = RAISED
    told = broker.told(3)
    assert levels(told.supported_features) == {TRANSACTION_VERSION: (2, 2)}
    assert levels(told.finalized_features) == {GROUP_VERSION: (1, 1), TRANSACTION_VERSION: (2, 2)}


def test_an_api_is_told_as_long_as_the_level_that_it_needs_is_used(broker):
    assert set(broker.told().ranges()) == {PLAIN}
    broker.finalized = RAISED
    for version in (0, 3, 4):
        assert set(broker.told(version).ranges()) == {NEEDY, PLAIN}
    assert set(broker.handler.advertised) == {NEEDY, PLAIN}
    broker.finalized = FIRST_FEATURES
    assert set(broker.told().ranges()) == {PLAIN}


def test_answers_are_made_once_for_each_change_of_levels(broker):
    assert broker.told(3) is broker.told(0)
    assert broker.told(4) is broker.told(4)
    before = broker.told(4)
    broker.finalized = RAISED
    assert broker.told(4) is not before
