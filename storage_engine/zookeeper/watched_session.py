"""The session of somebody else in ZooKeeper, and the process that holds it.

Only a process that was seen alive as the one that is named, and then ended, is proof that the
session's owner is dead. Source: R-CTL12, R-CLI3.
"""

from collections.abc import Callable

from storage_engine.core.control.death_proof import is_same_process, may_be_local
from storage_engine.core.ports import OpenProcess, Processes
from storage_engine.zookeeper.session_credentials import SessionZNode


class WatchedSession:
    """A session, or a znode that is none, by the name of its znode."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.session_id = 0
        self.process: OpenProcess | None = None
        """Not None while its process is known to run."""
        self.attempts = 0
        """How often its end was asked for."""

    def watch(
        self, processes: Processes, node: SessionZNode, when_ended: Callable[[], None]
    ) -> bool:
        """Watch the process that the znode names, if it runs on this machine. Returns False where
        another process has its number."""
        named = node.process
        if named is None or not may_be_local(processes.own, named):
            return True
        process = processes.open(named.pid)
        if process is None:
            return True
        if not is_same_process(named, process.start_ticks):
            process.close()
            return False
        self.process = process
        process.when_ended(when_ended)
        return True

    def forget(self) -> None:
        """Watch its process no more."""
        process, self.process = self.process, None
        if process is not None:
            process.close()
