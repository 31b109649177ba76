"""The loop of a broker, and its background threads: one of a lower priority that waits for a
processor would hold the interpreter's lock meanwhile."""

import asyncio
import os
import sys
import threading

import pytest

from storage_engine.net.event_loop_ports import ThreadBackground, new_event_loop


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


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


async def _niceness_in_background() -> int:
    loop = asyncio.get_running_loop()
    background = ThreadBackground(loop)
    found: asyncio.Future[int] = loop.create_future()
    try:
        background.submit(_niceness, found.set_result, found.set_exception)
        return await asyncio.wait_for(found, 30)
    finally:
        background.close()


def test_no_thread_waits_longer_for_a_processor_than_the_loop() -> None:
    assert asyncio.run(_niceness_in_background()) == _niceness()
