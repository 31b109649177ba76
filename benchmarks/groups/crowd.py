"""A group of members: they are started evenly over an interval, watched, and told to leave.

Rule: a member that fails fails the measurement.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from benchmarks.groups.connections import MemberConnection
from benchmarks.groups.members import (
    ClassicGroupMember,
    ConsumerGroupMember,
    Member,
    Watched,
    fetch_owned,
)
from storage_engine.tools.errors import CommandError

CONSUMER = "consumer"
"""The protocol of KIP-848; the others are the strategies of the classic one."""

_POLL_S = 0.02
_JOINING_S = 5.0
"""The time over which members that are started together begin: an interval of heartbeats."""


class Running:
    """A member at work."""

    def __init__(self, member: Member, connections: list[MemberConnection]) -> None:
        self.member = member
        self.connections = connections
        self.tasks: list[asyncio.Task[None]] = []

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Crowd:
    """The members of one group. Use as an asynchronous context manager."""

    def __init__(
        self, address: tuple[str, int], watched: Watched, protocol: str, *, fetches: bool
    ) -> None:
        self._address = address
        self.watched = watched
        self._protocol = protocol
        self._fetches = fetches
        self.running: list[Running] = []

    async def start(self) -> None:
        """Start one member more; it joins later."""
        connections = [await MemberConnection.open(self._address)]
        member: Member
        if self._protocol == CONSUMER:
            member = ConsumerGroupMember(self.watched, connections[0])
        else:
            member = ClassicGroupMember(self.watched, connections[0], self._protocol)
        running = Running(member, connections)
        loop = asyncio.get_running_loop()
        # First, so that a failure below closes the connections, too.
        self.running.append(running)
        running.tasks.append(loop.create_task(member.work()))
        if self._fetches:
            connections.append(await MemberConnection.open(self._address))
            running.tasks.append(
                loop.create_task(fetch_owned(self.watched, connections[1], member))
            )

    async def start_many(self, count: int) -> None:
        """Start members evenly over some seconds, or as fast as they can be."""
        begun_s = time.monotonic()
        for number in range(count):
            await self.start()
            early_s = begun_s + number * _JOINING_S / count - time.monotonic()
            if early_s > 0:
                await asyncio.sleep(early_s)
        self.check()

    async def leave(self) -> None:
        """Have the member that has been there longest leave."""
        running = self.running.pop(0)
        await running.stop()
        # The answer to its last request may still come: it leaves through another connection.
        farewell = await MemberConnection.open(self._address)
        running.member.connection = farewell
        await running.member.leave()
        for connection in (*running.connections, farewell):
            connection.close()

    async def wait_until(self, is_so: Callable[[], bool], what: str, timeout_s: float) -> None:
        """Wait; CommandError after the time, or when a member fails."""
        until_s = time.monotonic() + timeout_s
        while not is_so():
            self.check()
            if time.monotonic() > until_s:
                raise CommandError(f"{what} is not so after {timeout_s:.0f} s")
            await asyncio.sleep(_POLL_S)

    async def stay(self, seconds: float) -> None:
        """Let the members work for so long."""
        await asyncio.sleep(seconds)
        self.check()

    def check(self) -> None:
        """Raise the error of a member that has failed."""
        for running in self.running:
            for task in running.tasks:
                if task.done():
                    task.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for running in self.running:
            with contextlib.suppress(Exception):
                await running.stop()
            for connection in running.connections:
                connection.close()
