"""Which event loop a broker gets."""

import asyncio
import sys

import pytest

from storage_engine.net.event_loop_ports import new_event_loop


def test_a_broker_without_uvloop_runs_on_the_loop_of_asyncio(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    assert isinstance(loop, asyncio.SelectorEventLoop)
    loop.close()


def test_a_broker_runs_on_uvloop_where_it_is_installed():
    uvloop = pytest.importorskip("uvloop")
    loop = new_event_loop()
    assert isinstance(loop, uvloop.Loop)
    loop.close()
