"""All bytes of one TLS record are there at once, whatever the socket says."""

import socket
import ssl
import threading
import time

import pytest
import trustme

from storage_engine.zookeeper.kazoo_driver import EncryptingHandler, poll


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def served_once(authority: trustme.CA, data: bytes) -> tuple[threading.Thread, int]:
    """A server that sends `data` in one record, then waits for the end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with (
            listener,
            listener.accept()[0] as plain,
            context.wrap_socket(plain, server_side=True) as connection,
        ):
            connection.sendall(data)
            connection.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread, listener.getsockname()[1]


def test_the_rest_of_a_record_is_there_although_the_socket_has_nothing(authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    thread, port = served_once(authority, b"first second")
    handler = EncryptingHandler(context)
    connection = handler.create_connection(
        address=("127.0.0.1", port), hostname="127.0.0.1", timeout=10
    )
    try:
        assert poll([connection], [], 10)[0] == [connection]
        assert connection.recv(6) == b"first "
        begun = time.monotonic()
        assert handler.select([connection], [], [], 10)[0] == [connection]
        assert time.monotonic() - begun < 5
        assert connection.recv(100) == b"second"
        assert poll([connection], [], 0.05)[0] == []
    finally:
        connection.close()
        thread.join(10)
