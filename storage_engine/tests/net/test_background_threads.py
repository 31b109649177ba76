"""Background threads leave the processor to the loop."""

import asyncio
import os
import subprocess
import sys
import threading

from storage_engine.net.event_loop_ports import BACKGROUND_NICE, ThreadBackground


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


def test_background_threads_are_nicer_than_the_loop() -> None:
    own = _niceness()
    assert asyncio.run(_niceness_in_background()) == min(19, own + BACKGROUND_NICE)
    assert _niceness() == own


def test_a_broker_that_was_started_with_nice_has_background_threads_too() -> None:
    code = (
        "import asyncio, os; from storage_engine.tests.net import test_background_threads as here\n"
        "os.nice(15); print(asyncio.run(here._niceness_in_background()))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "19"


def test_background_threads_work_where_their_priority_may_not_be_changed(monkeypatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError("forbidden here")

    monkeypatch.setattr(os, "setpriority", forbidden)
    assert asyncio.run(_niceness_in_background()) == _niceness()
