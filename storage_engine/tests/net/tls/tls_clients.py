"""A server with TLS in the loop of a test, and a client that it knows."""

import contextlib

from storage_engine.net.limits import ServerLimits
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener
from storage_engine.net.tls.contexts import ListenerTls
from storage_engine.tests.net.serving import Client, echo
from storage_engine.tests.net.tls.certificates import client_context_of, profile_of, shaken


@contextlib.contextmanager
def serving_tls(thread, handle, tls=None, on_opened=None, **limits):
    listener = ServedListener(
        name="SSL",
        host="127.0.0.1",
        handle=handle,
        tls=tls or ListenerTls("SSL", profile_of()),
        on_opened=on_opened,
    )
    plain = ServedListener(host="127.0.0.1", handle=handle)
    server = Server(thread.loop, [listener, plain], ServerLimits(**limits))
    thread.run(server.start())
    try:
        yield server
    finally:
        thread.run(server.close(grace_ms=100))


class TlsClient(Client):
    def __init__(self, port, context=None):
        self.socket = shaken(port, context or client_context_of())


@contextlib.contextmanager
def asking_for_certificates(thread, client_auth, seen):
    tls = ListenerTls("SSL", profile_of(client_auth=client_auth))

    def identify(connection):
        seen.append(tls.principal_of(connection.tls))

    with serving_tls(thread, echo, tls, identify) as server:
        yield server
