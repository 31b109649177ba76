"""A Python process of Spark is prepared, and no other process is changed."""

import gc
import socket
import sys
import types

import pyspark
import pytest

from connector import spark_workers
from connector.spark_workers import freeze_modules, prepare_worker


@pytest.fixture
def connection(monkeypatch):
    """A connection to this machine, as a worker has one to the JVM."""
    monkeypatch.setattr(spark_workers, "_sends_at_once", False)
    monkeypatch.setattr(spark_workers, "freeze_modules", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            yield ours


def sends_at_once(sock: socket.socket) -> bool:
    return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))


def test_a_task_sends_small_pieces_at_once(connection, monkeypatch):
    monkeypatch.setattr(pyspark.TaskContext, "get", classmethod(lambda cls: object()))
    prepare_worker()
    assert sends_at_once(connection)


def test_so_does_a_worker_of_the_driver(connection, monkeypatch):
    daemon = types.SimpleNamespace(__spec__=types.SimpleNamespace(name="pyspark.daemon"))
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    prepare_worker()
    assert sends_at_once(connection)


def test_the_users_program_is_left_alone(connection):
    prepare_worker()
    assert not sends_at_once(connection)


def test_other_descriptors_are_left_as_they_are(connection, monkeypatch, tmp_path):
    pair = socket.socketpair()
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with pair[0], pair[1], datagram, (tmp_path / "file").open("w") as file:
        spark_workers.send_at_once()
        pair[0].sendall(b"x")
        assert pair[1].recv(1) == b"x"
        file.write("x")
        assert datagram.fileno() >= 0
    assert sends_at_once(connection)


class Freezes(list):
    """The number of modules at each freeze."""

    def freeze(self):
        self.append(len(sys.modules))


@pytest.fixture
def freezes(monkeypatch):
    """As if in a worker that was called for nothing before."""
    monkeypatch.setattr(spark_workers, "_frozen_modules", None)
    freezes = Freezes()
    monkeypatch.setattr(spark_workers, "gc", freezes)
    return freezes


def test_the_second_task_freezes_and_later_ones_do_not(freezes):
    freeze_modules()
    assert freezes == []
    for _ in range(3):
        freeze_modules()
    assert freezes == [len(sys.modules)]


def test_a_task_freezes_what_was_loaded_since(freezes, monkeypatch):
    freeze_modules()
    freeze_modules()
    monkeypatch.setitem(sys.modules, "loaded_by_the_user", gc)
    freeze_modules()
    assert [count - freezes[0] for count in freezes] == [0, 1]
