"""Waiting for brokers to serve."""

import pytest

from storage_engine.tests.client.fake_cluster import FakeCluster
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_file import BrokerEntry
from storage_engine.tools.local.serving import wait_until_serving


@pytest.fixture
def brokers():
    fake = FakeCluster(brokers=2)
    yield fake
    fake.close()


def entries(fake):
    return [
        BrokerEntry.for_id(broker, "127.0.0.1", server.port)
        for broker, server in fake.servers.items()
    ]


def wait(fake, expected=(1, 2), told=None, check_alive=lambda: None):
    wait_until_serving(
        entries(fake),
        expected=expected,
        timeout_s=0.3,
        check_alive=check_alive,
        progress=lambda line: None if told is None else told.append(line),
    )


def test_each_broker_is_told_once_it_knows_all_and_a_controller(brokers):
    told: list[str] = []
    wait(brokers, told=told)
    assert told == [f"broker {each.id} serves on {each.address}" for each in entries(brokers)]


def test_what_a_broker_does_not_know_is_told_when_the_time_is_over(brokers):
    with pytest.raises(CommandError, match=r"not up after 0 s: broker 1 .* know broker 3, 4 yet"):
        wait(brokers, expected=(1, 2, 3, 4))
    brokers.controller_id = 9
    with pytest.raises(CommandError, match="knows no controller yet"):
        wait(brokers)


def test_a_broker_that_refuses_connections_does_not_answer(brokers):
    known = entries(brokers)
    brokers.stop_broker(2)
    with pytest.raises(CommandError, match=rf"broker 2 on {known[1].address} does not answer"):
        wait_until_serving(
            known,
            expected=[1],
            timeout_s=0.3,
            check_alive=lambda: None,
            progress=lambda line: None,
        )


def test_waiting_ends_with_what_makes_it_pointless(brokers):
    def ended() -> None:
        raise CommandError("broker 1 ended: the port is in use")

    with pytest.raises(CommandError, match="the port is in use"):
        wait(brokers, expected=(1, 2, 3), check_alive=ended)
