"""A client that has not logged in reaches no handler, and a crowd of such clients takes no place of
the others."""

import socket
import time

from storage_engine.broker.authentication import sasl_gate
from storage_engine.broker.handlers.api_call import HandlerTable
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages import sasl_authenticate, sasl_handshake
from storage_engine.tests.broker.authentication.logging_in import ALICE, LogInClient, gated_server
from storage_engine.tests.net.serving import eventually


def test_who_has_logged_in_is_served_in_its_own_name() -> None:
    with gated_server() as server, LogInClient(server.port) as client:
        assert client.handshake().mechanisms == ["PLAIN"]
        answer = client.authenticate()
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        assert client.is_served()
        assert server.principals == ["User:alice"]


def test_before_the_users_are_known_nobody_is_refused() -> None:
    with gated_server(is_open=False) as server:
        with LogInClient(server.port) as client:
            assert client.closed_by_server()
        server.thread.call(server.gate.open)
        with LogInClient(server.port) as client:
            assert client.log_in().error_code == 0


def test_a_crowd_that_does_not_log_in_takes_no_place_of_those_who_do(monkeypatch) -> None:
    monkeypatch.setattr(sasl_gate, "IN_PROGRESS_MAX", 3)
    monkeypatch.setattr(sasl_gate, "GRACE_MS", 300)
    with gated_server() as server:
        crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3)]
        eventually(lambda: len(server.gate._log_ins) == 3)
        with LogInClient(server.port) as client:
            assert client.closed_by_server(), "those before it have only just come"
        with LogInClient(server.brokers_port) as broker:
            broker.log_in()
            assert broker.is_served(), "those before it came by another listener"
        time.sleep(0.4)
        with LogInClient(server.port) as client:
            client.log_in()
            assert client.is_served()
        for each in crowd:
            each.close()
        eventually(lambda: not server.gate._log_ins)
        assert not any(server.gate._in_progress.values())


class Call:
    """A request that came by a listener without a gate."""

    def __init__(self) -> None:
        self.connection = object()
        self.answers: list = []

    def respond(self, message) -> None:
        self.answers.append(message)


def test_where_nobody_is_asked_a_log_in_has_no_place() -> None:
    table = HandlerTable()
    with gated_server() as server:
        server.gate.add_apis(table)
    requests = {
        sasl_handshake.API.key: sasl_handshake.SaslHandshakeRequest(mechanism="PLAIN"),
        sasl_authenticate.API.key: sasl_authenticate.SaslAuthenticateRequest(auth_bytes=ALICE),
    }
    for key, request in requests.items():
        call = Call()
        served = table.get(key)
        assert served is not None
        served.handler(call, request)
        assert [each.error_code for each in call.answers] == [ErrorCode.ILLEGAL_SASL_STATE]
