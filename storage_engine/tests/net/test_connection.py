"""What the responses of a connection hold once the client is gone."""

import asyncio
import gc
import weakref
from unittest.mock import MagicMock

import pytest

from storage_engine.net.connection import Connection
from storage_engine.net.server import Server
from storage_engine.net.serving import ServedListener


@pytest.fixture
def no_collector():
    gc.disable()
    yield
    gc.enable()


def connected(loop) -> Connection:
    listener: ServedListener[Connection] = ServedListener(
        host="", handle=lambda connection, frame: None
    )
    connection = Connection(Server(loop, [listener]), listener)
    transport = MagicMock()
    transport.get_extra_info = {"socket": MagicMock(**{"fileno.return_value": 5})}.get
    connection.connection_made(transport)
    return connection


def test_a_lost_connection_is_freed_without_the_collector_while_a_request_is_worked_on(
    no_collector,
):
    loop = asyncio.new_event_loop()
    try:
        connection = connected(loop)
        exchange = connection.begin()
        before = exchange.closed
        seen = weakref.ref(connection)
        connection.connection_lost(None)
        del connection
        assert seen() is None
        assert (before, exchange.closed) == (False, True)
        exchange.respond([b"goes nowhere"])
    finally:
        loop.close()
