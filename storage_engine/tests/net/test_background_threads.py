"""Background threads have the priority of the loop: one of a lower priority, which waits for a
processor, would hold the interpreter's lock meanwhile."""

import asyncio
import os
import threading

from storage_engine.net.event_loop_ports import ThreadBackground


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
