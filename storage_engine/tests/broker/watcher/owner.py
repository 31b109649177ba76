"""A process with a session and a watcher, as a broker has them:

    python -P -m …watcher.owner CONNECT TIMEOUT_MS NODE RESTART_S LOG_FILE

It owns the znode NODE, prints the process of its watcher, also of each later one, and on a line of
stdin closes its session in order.
"""

import asyncio
import contextlib
import logging
import os
import sys

from storage_engine.broker.watcher import session_watcher
from storage_engine.broker.watcher.session_watcher import SessionWatcher
from storage_engine.broker.watcher.told import WatchedBroker
from storage_engine.net.event_loop_ports import LoopScheduler, SystemClock
from storage_engine.net.local_processes import LocalProcesses
from storage_engine.zookeeper.session import ZooKeeperSession

BROKER_ID = 7


async def main() -> None:
    connect, timeout_ms, node, restart_s, log_file = sys.argv[1:]
    logging.basicConfig(filename=log_file, level=logging.INFO)
    session_watcher.RESTART_S = float(restart_s)
    loop = asyncio.get_running_loop()
    broker = WatchedBroker(
        broker_id=BROKER_ID,
        pid=os.getpid(),
        connect=connect,
        session_timeout_ms=int(timeout_ms),
        log_file=session_watcher.log_file(),
    )
    watcher = SessionWatcher(broker, LocalProcesses(loop), LoopScheduler(loop))
    watcher.start()
    session = ZooKeeperSession(
        connect,
        int(timeout_ms),
        loop.call_soon_threadsafe,
        clock=SystemClock(),
        on_session=watcher.session_is,
    )
    await loop.run_in_executor(None, session.start, 20_000)
    made: asyncio.Future[object] = loop.create_future()
    session.create(node, b"", made.set_result, ephemeral=True)
    await made
    told = asyncio.ensure_future(_tell(watcher))
    await loop.run_in_executor(None, sys.stdin.readline)
    told.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await told
    session.close()
    watcher.close()


async def _tell(watcher: SessionWatcher) -> None:
    last = None
    while True:
        if watcher.pid not in (None, last):
            last = watcher.pid
            print(last, flush=True)
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    asyncio.run(main())
