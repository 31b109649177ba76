"""Heartbeats of a task, with a coordinator that is not there at first."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from connector.errors import OptionError
from connector.options.sink_options import parse_sink_options
from connector.sink import heartbeats
from connector.sink.heartbeats import Heartbeats
from connector.sink.micro_batch import MicroBatchId
from storage_engine.core.errors import AuthenticationError

DEADLINE_S = 30
BATCH = MicroBatchId(sink="s", query="q", batch=3)


@pytest.mark.parametrize("fault", [OptionError("BAD_OPTION", "no file"), AuthenticationError("no")])
@pytest.mark.parametrize("where", ["settings", "beat"])
def test_a_fault_ends_one_heartbeat_and_the_settings_are_read_again(monkeypatch, fault, where):
    faults, beaten = [fault], threading.Event()
    read = []

    def fail(place):
        if place == where and faults:
            raise faults.pop()

    class Cluster:
        def __init__(self, connection):
            read.append(connection)
            fail("settings")

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    def heartbeat(batch):
        fail("beat")
        beaten.set()

    monkeypatch.setattr(heartbeats, "new_cluster", Cluster)
    monkeypatch.setattr(
        heartbeats, "MicroBatches", lambda *args, **more: SimpleNamespace(heartbeat=heartbeat)
    )
    options = parse_sink_options({"bootstrap.servers": "h:1", "topic": "t"})
    with Heartbeats(replace(options, transaction_timeout_ms=40), BATCH):
        assert beaten.wait(DEADLINE_S)
    is_kept = where == "beat" and not isinstance(fault, AuthenticationError)
    assert len(read) == (1 if is_kept else 2)
