"""Connections that can't be accepted wait in the system's queue, and are told of once (R-NET1)."""

import errno
import logging
import os
import socket

import pytest

from storage_engine.net.acceptor import Acceptor
from storage_engine.tests.net.serving import eventually, stays


class Rate:
    """Lets so many connections in."""

    def __init__(self, left):
        self.left = left

    def wait_ms(self):
        return 0 if self.left else 60_000

    def count(self):
        self.left -= 1


@pytest.fixture
def accepting(loop_thread):
    """Begins to accept; returns the address, and the connections as they are taken."""
    made = []

    def begin(rate=None):
        taken: list[socket.socket] = []
        bound = loop_thread.run(
            loop_thread.loop.create_server(lambda: None, "127.0.0.1", 0, start_serving=False)
        )
        acceptor = loop_thread.call(lambda: Acceptor(loop_thread.loop, bound, taken.append, rate))
        made.append((acceptor, bound, taken))
        return bound.sockets[0].getsockname(), taken

    yield begin
    for acceptor, bound, taken in made:
        loop_thread.call(acceptor.close)
        loop_thread.call(bound.close)
        for sock in taken:
            sock.close()


def test_what_is_taken_does_not_block_and_a_closed_acceptor_takes_nothing(loop_thread, accepting):
    address, taken = accepting()
    with socket.create_connection(address):
        eventually(lambda: len(taken) == 1)
        assert not taken[0].getblocking()


def test_without_descriptors_it_pauses_says_so_once_and_goes_on(accepting, monkeypatch, caplog):
    address, taken = accepting()
    accept, short = socket.socket.accept, [True]

    def failing(listener):
        if short[0]:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(listener)

    caplog.set_level(logging.ERROR, "storage_engine.net.acceptor")
    monkeypatch.setattr(socket.socket, "accept", failing)
    with socket.create_connection(address), socket.create_connection(address):
        eventually(lambda: bool(caplog.messages))
        # Some pauses pass.
        assert stays(lambda: not taken, 0.35)
        (line,) = caplog.messages
        assert "Too many open files; raise the limit of open files (ulimit -n)" in line
        short[0] = False
        eventually(lambda: len(taken) == 2)


def test_a_line_about_the_rate_hides_none_about_descriptors(accepting, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "storage_engine.net.acceptor")
    monkeypatch.setattr("storage_engine.net.acceptor.RATE_WAIT_MAX_MS", 50)
    rate = Rate(1)
    address, taken = accepting(rate)
    with socket.create_connection(address), socket.create_connection(address):
        eventually(lambda: len(taken) == 1 and bool(caplog.messages))

        def failing(_listener):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        monkeypatch.setattr(socket.socket, "accept", failing)
        rate.left = 5
        eventually(lambda: len(caplog.messages) == 2)
    assert "max.connection.creation.rate is used up" in caplog.messages[0]
    assert "they can't be accepted: Too many open files" in caplog.messages[1]


def test_a_client_that_is_gone_again_costs_no_other(accepting, monkeypatch, caplog):
    accept, gone = socket.socket.accept, [True]

    def failing(listener):
        if gone.pop() if gone else False:
            raise ConnectionAbortedError(errno.ECONNABORTED, "gone")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", failing)
    address, taken = accepting()
    with socket.create_connection(address):
        eventually(lambda: len(taken) == 1)
    assert caplog.messages == []


def test_above_the_rate_connections_wait_until_it_may_be_read_again(accepting, monkeypatch):
    monkeypatch.setattr("storage_engine.net.acceptor.RATE_WAIT_MAX_MS", 50)
    rate = Rate(1)
    address, taken = accepting(rate)
    with socket.create_connection(address), socket.create_connection(address):
        eventually(lambda: len(taken) == 1)
        assert stays(lambda: len(taken) == 1, 0.2)
        rate.left = 5
        eventually(lambda: len(taken) == 2)
