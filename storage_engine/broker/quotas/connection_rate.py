"""Bounds how often an address connects (KIP-612)."""

from storage_engine.broker.quotas.client_usage import ClientUsage
from storage_engine.core.ports import Scheduler
from storage_engine.net.connection import Connection

LONGEST_MS = 1000
"""A connection too many is closed after this at the latest, so that few are kept waiting."""


class ConnectionRate:
    """A connection for which there is no credit is not read, and closed a little later: a client
    that tries again at once would otherwise do so as fast as it can."""

    def __init__(self, usage: ClientUsage, scheduler: Scheduler) -> None:
        self._usage = usage
        self._scheduler = scheduler

    def opened(self, connection: Connection) -> None:
        wait_ms = self._usage.connect(connection.peer_host)
        if not wait_ms:
            return
        connection.hold()
        reason = f"the quota connection_creation_rate of {connection.peer_host} is used up"
        self._scheduler.call_later(min(wait_ms, LONGEST_MS), lambda: connection.close(reason))
