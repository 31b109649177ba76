"""Rates of new connections: of a broker, of one listener, and of one address (KIP-612)."""

import pytest

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.quotas.client_usage import ClientUsage
from storage_engine.broker.quotas.connection_rates import (
    KEY,
    LONGEST_MS,
    ConnectionRate,
    CreationRates,
    ListenerRate,
)
from storage_engine.broker.settings.config_store import ConfigEntity
from storage_engine.broker.settings.dynamic_config import DynamicConfig
from storage_engine.core.quotas import QuotaEntity
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.tests.broker.settings.broker_configs import config
from storage_engine.tests.broker.support import QuietConnection

LISTENERS = {
    "listeners": "A://:1,B://:2,BROKERS://:3",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,BROKERS:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
}


class Rates:
    """The rates of three listeners over simulated time."""

    def __init__(self, **settings: str) -> None:
        self.loop = SimulatedLoop()
        self.config = DynamicConfig(config(LISTENERS | settings))
        rates = CreationRates(self.config, self.loop)
        self.a = rates.of("A", is_for_brokers=False)
        self.b = rates.of("B", is_for_brokers=False)
        self.brokers = rates.of("BROKERS", is_for_brokers=True)

    def waits_ms(self) -> list[int]:
        return [each.wait_ms() for each in (self.a, self.b, self.brokers)]


def count(listener: ListenerRate, connections: int) -> None:
    for _ in range(connections):
        listener.count()


def test_without_a_rate_nobody_waits():
    rates = Rates()
    count(rates.a, 10_000)
    assert rates.waits_ms() == [0, 0, 0]


def test_a_listener_waits_for_its_own_rate_and_for_that_of_the_broker():
    rates = Rates(**{KEY: "4", f"listener.name.a.{KEY}": "1"})
    count(rates.a, 2)
    assert rates.waits_ms() == [1001, 0, 0]
    count(rates.b, 3)
    assert rates.waits_ms() == [1001, 251, 0]
    rates.loop.run_for(1001)
    assert rates.waits_ms() == [0, 0, 0]


def test_the_listener_of_brokers_counts_for_the_rate_of_the_broker_and_does_not_wait_for_it():
    rates = Rates(**{KEY: "4", f"listener.name.brokers.{KEY}": "8"})
    count(rates.brokers, 8)
    assert rates.waits_ms() == [1001, 1001, 0]
    count(rates.brokers, 1)
    assert rates.brokers.wait_ms() == 126


def test_a_rate_that_is_changed_counts_at_once():
    rates = Rates(**{KEY: "1"})
    count(rates.a, 3)
    assert rates.a.wait_ms() == 2001
    rates.config.replace_layer(ConfigSource.BROKER, {KEY: "2"})
    assert rates.a.wait_ms() == 2001
    rates.loop.run_for(1000)
    rates.config.replace_layer(ConfigSource.BROKER, {})
    rates.config.replace_layer(ConfigSource.ALL_BROKERS, {KEY: "2147483647"})
    assert rates.a.wait_ms() == 0


@pytest.mark.parametrize(("rate", "closed_after_ms"), [("10", 101), ("1", LONGEST_MS)])
def test_a_connection_above_the_rate_of_its_address_is_kept_waiting_and_closed(
    rate, closed_after_ms
):
    loop = SimulatedLoop()
    usage = ClientUsage(loop)
    entity = ConfigEntity.of_quota(QuotaEntity(ip=QuietConnection.peer_host))
    usage.take(entity, {"connection_creation_rate": rate})
    addresses = ConnectionRate(usage, loop)
    connections = [QuietConnection() for _ in range(int(rate) + 2)]
    for each in connections:
        addresses.opened(each)
    assert [each.holds for each in connections] == [0] * (len(connections) - 1) + [1]
    loop.run_for(closed_after_ms - 1)
    assert not connections[-1].closed_for
    loop.run_for(1)
    assert connections[-1].closed_for == [
        "the quota connection_creation_rate of 10.0.0.7 is used up"
    ]
    assert not any(each.closed_for for each in connections[:-1])
