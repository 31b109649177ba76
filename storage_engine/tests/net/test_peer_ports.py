"""What counts as a refused port, and as a connection that the other side has ended: R-CTL12."""

import socket

import pytest

from storage_engine.core.ports import Endpoint, PortAnswer
from storage_engine.net import peer
from storage_engine.net.peer import PeerTransport, TcpPeerPorts
from storage_engine.tests.net.serving import eventually, serving, stays
from storage_engine.tests.net.test_peer import Asker, abort_all, fetching


def endpoint(port: int, host: str = "127.0.0.1") -> Endpoint:
    return Endpoint(broker_id=1, host=host, port=port)


@pytest.fixture
def asker(loop_thread):
    asker = Asker(loop_thread)
    yield asker
    asker.close()


@pytest.fixture
def ports(loop_thread, asker) -> TcpPeerPorts:
    return TcpPeerPorts(loop_thread.loop, asker.transport)


def answer_of(loop_thread, ports: TcpPeerPorts, where: Endpoint) -> PortAnswer:
    answers: list[PortAnswer] = []
    loop_thread.call(lambda: ports.probe(where, answers.append))
    eventually(lambda: bool(answers))
    return answers[0]


def test_a_port_without_a_listener_refuses(loop_thread, ports):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        where = endpoint(taken.getsockname()[1])
        assert answer_of(loop_thread, ports, where) is PortAnswer.REFUSED


def test_a_port_with_a_listener_accepts(loop_thread, ports):
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = endpoint(server.getsockname()[1])
        assert answer_of(loop_thread, ports, where) is PortAnswer.ACCEPTED


def test_a_port_whose_queue_is_full_does_not_refuse(loop_thread, ports, monkeypatch):
    monkeypatch.setattr(peer, "PROBE_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        where = endpoint(server.getsockname()[1])
        assert answer_of(loop_thread, ports, where) is PortAnswer.SILENT
        for each in waiting:
            each.close()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "255.255.255.255"])
def test_a_host_that_can_not_be_asked_has_not_refused(loop_thread, ports, host):
    assert answer_of(loop_thread, ports, endpoint(9, host)) is PortAnswer.SILENT


def test_who_ends_a_connection_is_told_of_and_who_is_left_is_not(loop_thread, asker, ports):
    closed: list[Endpoint] = []
    loop_thread.call(lambda: ports.on_closed(closed.append))
    with serving(loop_thread, fetching) as server:
        port = next(iter(server.ports.values()))
        asker.ask(port, 1)
        asker.wait_for(1)
        loop_thread.call(lambda: asker.transport.disconnect(endpoint(port), "fetch"))
        assert stays(lambda: closed == [])
        asker.ask(port, 2)
        asker.wait_for(2)
        loop_thread.call(lambda: abort_all(server))
        eventually(lambda: closed == [endpoint(port)])


def test_a_connection_that_was_never_made_has_not_ended(loop_thread, asker, ports):
    closed: list[Endpoint] = []
    loop_thread.call(lambda: ports.on_closed(closed.append))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        asker.ask(taken.getsockname()[1], 1)
        asker.wait_for(1)
    assert isinstance(asker.transport, PeerTransport)
    assert closed == []
