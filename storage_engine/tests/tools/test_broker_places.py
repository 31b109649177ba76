"""Where brokers say they are, and whether they take new replicas."""

from dataclasses import replace

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.placement import BrokerPlace
from storage_engine.protocol.messages.describe_configs import DescribeConfigsResponse
from storage_engine.tools.broker_places import read_places

Result = DescribeConfigsResponse.DescribeConfigsResult


class Settings:
    """What each broker says of itself."""

    def __init__(self, fake) -> None:
        self.of: dict[int, dict[str, str]] = {}
        self.code = ErrorCode.NONE
        fake.admin = self._answer

    def _answer(self, broker, api, message):
        assert (api, message.resources[0].resource_name) == ("DescribeConfigs", str(broker))
        rows = [
            Result.DescribeConfigsResourceResult(name=name, value=value)
            for name, value in self.of.get(broker, {}).items()
        ]
        return DescribeConfigsResponse(results=[Result(error_code=self.code, configs=rows)])


@pytest.fixture
def settings(fake) -> Settings:
    return Settings(fake)


def places(fake, brokers, zones=()):
    with Cluster(fake.bootstrap_servers) as cluster:
        view = cluster.metadata([])
        named = {b: replace(each, rack=dict(zones).get(b)) for b, each in view.brokers.items()}
        return read_places(cluster, replace(view, brokers=named), brokers)


def test_each_broker_is_asked_for_its_own_place(fake, settings):
    settings.of = {1: {"broker.host.name": "h1"}, 3: {"broker.host.name": "h3"}}
    assert places(fake, [1, 3], {3: "z"}) == {
        1: BrokerPlace(None, "h1"),
        3: BrokerPlace("z", "h3"),
    }


@pytest.mark.parametrize("told", [{}, {"broker.host.name": ""}])
def test_a_broker_without_a_name_of_its_machine_has_none(fake, settings, told):
    settings.of = {2: told}
    assert places(fake, [2]) == {2: BrokerPlace()}


@pytest.mark.parametrize(
    ("cordoned", "log_dirs", "expected"),
    [
        ("*", "/a,/b", True),
        ("/a,/b", "/a,/b", True),
        ("/a", "/a,/b", False),
        ("", "/a", False),
        ("", "", False),
    ],
)
def test_a_broker_is_cordoned_when_all_its_log_dirs_are(
    fake, settings, cordoned, log_dirs, expected
):
    settings.of = {1: {"cordoned.log.dirs": cordoned, "log.dirs": log_dirs}}
    assert places(fake, [1])[1].is_cordoned is expected


def test_who_may_not_see_the_settings_is_told(fake, settings):
    settings.code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with pytest.raises(KafkaError) as told:
        places(fake, [1])
    assert told.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
