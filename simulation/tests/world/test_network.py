"""Simulated connections: held up, cut, given up."""

import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.network import CLIENT
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis import api_versions


@pytest.fixture
def network(tmp_path):
    made = SimulatedCluster(tmp_path, 1)
    yield made.network
    made.close()


def ask(network, timeout_ms=10_000) -> list:
    """The answers that have come by now."""
    answers: list = []
    request = api_versions.ApiVersionsRequest()
    network.send(
        CLIENT, 1, api_versions.API, 0, request, timeout_ms=timeout_ms, on_reply=answers.append
    )
    return answers


def test_an_answer_comes_after_the_way_there_and_back(network):
    answers = ask(network)
    network.loop.run_for(1)
    assert answers == []
    network.loop.run_for(50)
    assert [type(answer) for answer in answers] == [api_versions.ApiVersionsResponse]


@pytest.mark.parametrize("direction", [(CLIENT, 1), (1, CLIENT)])
def test_what_is_held_up_waits_and_arrives_when_the_partition_ends(network, direction):
    network.hold_up(*direction)
    answers = ask(network)
    network.loop.run_for(1_000)
    assert answers == []
    network.heal()
    network.loop.run_for(50)
    assert len(answers) == 1 and not isinstance(answers[0], TransportError)


def test_a_sender_that_waits_too_long_is_told_and_hears_no_late_answer(network):
    network.hold_up(CLIENT, 1)
    answers = ask(network, timeout_ms=100)
    network.loop.run_for(200)
    network.heal()
    network.loop.run_for(1_000)
    assert [type(answer) for answer in answers] == [TransportError]


def test_a_broker_that_is_killed_breaks_its_connections_at_once(tmp_path):
    cluster = SimulatedCluster(tmp_path, 1)
    answers = ask(cluster.network)
    cluster[1].kill()
    cluster.loop.run_for(50)
    assert [type(answer) for answer in answers] == [TransportError]
    cluster.close()
