"""Where a broker may give its metrics."""

import pytest

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.core.errors import ConfigError

LEAST = {"broker.id": "1", "log.dirs": "/d", "zookeeper.connect": "localhost:2181"}


def _config(**given: str) -> BrokerConfig:
    return BrokerConfig.from_mapping({**LEAST, **given})


def test_without_the_setting_there_are_none():
    assert _config().metrics is None
    assert _config(**{"metrics.listener": " "}).metrics is None


@pytest.mark.parametrize("address", ["127.0.0.1:9308", "[::1]:9308", "localhost:9308"])
def test_the_loopback_needs_no_further_word(address):
    found = _config(**{"metrics.listener": address}).metrics
    assert found is not None
    assert found.port == 9308


@pytest.mark.parametrize("address", ["0.0.0.0:9308", "10.0.0.7:9308", "broker-1:9308", "[::]:9308"])
def test_an_address_for_other_machines_must_be_allowed(address):
    with pytest.raises(ConfigError, match=r"metrics\.listener\.allow\.remote=true"):
        _config(**{"metrics.listener": address})
    found = _config(**{"metrics.listener": address, "metrics.listener.allow.remote": "true"})
    assert found.metrics is not None


@pytest.mark.parametrize(
    "address", ["9308", "127.0.0.1", "http://127.0.0.1:9308", "a:b:1", "x:70000"]
)
def test_what_is_no_address_is_one_line_with_an_example(address):
    with pytest.raises(ConfigError, match=r"must be HOST:PORT, e\.g\. 127\.0\.0\.1:9308"):
        _config(**{"metrics.listener": address})
