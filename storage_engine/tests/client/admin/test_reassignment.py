"""The throttle of a move is waited for at each broker that reports its rates."""

import pytest

from storage_engine.client.admin import reassignment
from storage_engine.client.admin.topics import ConfigEntry
from storage_engine.client.cluster import Cluster
from storage_engine.core.errors import DeadlineExceededError, ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.settings.config_source import ConfigSource

TP = TopicPartition("t", 0)


def rates(value: str, source: ConfigSource = ConfigSource.ALL_BROKERS) -> dict[str, ConfigEntry]:
    return {
        name: ConfigEntry(name=name, value=value, source=source, read_only=False, sensitive=False)
        for name in reassignment._RATES
    }


@pytest.fixture
def set_throttle(fake, monkeypatch):
    """Sets 1000 bytes a second; each look at a broker's settings takes the next of `found`."""

    def act(*found):
        left = list(found)

        def describe(_cluster, _broker):
            each = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(each, Exception):
                raise each
            return each

        monkeypatch.setattr(reassignment, "describe_broker_configs", describe)
        for name in ("alter_topic_configs", "alter_broker_configs"):
            monkeypatch.setattr(reassignment, name, lambda *_args, **_more: None)
        with Cluster(fake.bootstrap_servers, deadline_ms=1000) as cluster:
            reassignment.set_throttle(cluster, {TP: (2,)}, {TP: (1,)}, 1000)
        return len(left)

    return act


def test_a_broker_that_was_away_or_late_is_asked_again(set_throttle):
    away = KafkaError("away", ErrorCode.NETWORK_EXCEPTION)
    assert set_throttle(away, rates("7"), rates("1000")) == 1


@pytest.mark.parametrize("found", [rates("7", ConfigSource.BROKER), {}])
def test_rates_of_its_own_and_rates_that_are_not_listed_are_not_waited_for(set_throttle, found):
    set_throttle(found)


def test_a_broker_that_never_takes_the_rate_is_named(set_throttle):
    with pytest.raises(DeadlineExceededError, match=r"throttle of broker 1: .*not in force"):
        set_throttle(rates("7"))
