"""How often clients connect, and how many connections an address has: settings of the broker and of
a listener, which change while it runs (KIP-402, KIP-612)."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from integration_tests.strangers.broker_state import API_VERSIONS
from integration_tests.support.brokers_by_hand import HOST, BrokersByHand, brokers_by_hand
from integration_tests.support.cluster_support import wait_until

OF_ALL = "max.connection.creation.rate"
OF_CLIENTS = f"listener.name.outside.{OF_ALL}"
RATE = 20
CLIENTS = 70
"""So many take 2.5 s: a second's worth comes at once."""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory) -> Iterator[BrokersByHand]:
    with brokers_by_hand(tmp_path_factory.mktemp("bounded"), ["INSIDE", "OUTSIDE"]) as by_hand:
        by_hand.start(
            1,
            {
                "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
                "inter.broker.listener.name": "INSIDE",
            },
        )
        yield by_hand


@pytest.fixture
def settings(brokers) -> Iterator["BrokerSettings"]:
    made = BrokerSettings(brokers)
    yield made
    made.remove()


class BrokerSettings:
    """Those that a test has set at run time."""

    def __init__(self, brokers: BrokersByHand) -> None:
        self._brokers = brokers
        self._client = AdminClient({"bootstrap.servers": brokers.bootstrap("INSIDE")})
        self._set: list[str] = []

    def set(self, key: str, value: str) -> None:
        self._alter(key, value, AlterConfigOpType.SET)
        self._set.append(key)

    def remove(self) -> None:
        for key in self._set:
            self._alter(key, "", AlterConfigOpType.DELETE)

    def _alter(self, key: str, value: str, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(key, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        for each in self._client.incremental_alter_configs([resource]).values():
            each.result(30)


def served_s(brokers: BrokersByHand, listener: str, count: int = CLIENTS) -> float:
    """How long it takes until so many clients, one after the other, have had an answer."""
    begun_s = time.monotonic()
    for _ in range(count):
        with connected(brokers, listener) as client:
            client.sendall(API_VERSIONS)
            assert client.recv(1), "a client was refused"
    return time.monotonic() - begun_s


def connected(brokers: BrokersByHand, listener: str, source: str = HOST) -> socket.socket:
    return socket.create_connection(
        (HOST, brokers.port(1, listener)), timeout=30, source_address=(source, 0)
    )


def test_clients_of_a_listener_wait_for_its_rate_and_those_of_another_do_not(brokers, settings):
    free_s = served_s(brokers, "OUTSIDE")
    settings.set(OF_CLIENTS, str(RATE))
    wait_until(lambda: served_s(brokers, "OUTSIDE", RATE + 5) > 0.1, "the rate is in force")
    time.sleep(1)  # A second's worth of credit.
    assert 2 <= served_s(brokers, "OUTSIDE") < 8 + 3 * free_s
    assert served_s(brokers, "INSIDE") < 2 + 3 * free_s
    assert "max.connection.creation.rate is used up" in brokers.log(1)


def test_the_rate_of_the_broker_holds_clients_up_and_not_brokers(brokers, settings):
    free_s = served_s(brokers, "INSIDE")
    settings.set(OF_ALL, str(RATE))
    wait_until(lambda: served_s(brokers, "OUTSIDE", RATE + 5) > 0.1, "the rate is in force")
    assert served_s(brokers, "INSIDE") < 2 + 3 * free_s
    # What has come by that listener counts: nobody has credit now, or not much on a slow machine.
    assert served_s(brokers, "OUTSIDE", 10) > 0.2


def test_an_address_has_as_many_connections_as_it_may(brokers, settings):
    settings.set("max.connections.per.ip", "3")
    settings.set("max.connections.per.ip.overrides", "127.0.0.3:1,127.0.0.1:100")
    for source, most in (("127.0.0.2", 3), ("127.0.0.3", 1), (HOST, 10)):
        wait_until(lambda s=source, m=most: open_from(brokers, s) == m, f"{source} has {most}")


def open_from(brokers: BrokersByHand, source: str) -> int:
    """How many of ten connections of that address are kept."""
    kept = 0
    with contextlib.ExitStack() as stack:
        for _ in range(10):
            client = stack.enter_context(connected(brokers, "OUTSIDE", source))
            with contextlib.suppress(ConnectionError):
                client.sendall(API_VERSIONS)
                kept += bool(client.recv(1))
    return kept


def test_overrides_of_another_form_are_refused(brokers, settings):
    with pytest.raises(KafkaException, match=r"must be host:number"):
        settings.set("max.connections.per.ip.overrides", "10.0.0.7")
