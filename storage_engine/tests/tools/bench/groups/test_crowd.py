"""A crowd's member that fails fails the measurement."""

import asyncio

import pytest

from benchmarks.groups.crowd import CONSUMER, Crowd
from benchmarks.groups.fetches import Ownership, Pauses
from benchmarks.groups.members import Watched
from storage_engine.tools.errors import CommandError


async def started_at_a_peer_that_closes() -> None:
    def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    watched = Watched("g", "t", 1, Ownership(1), Pauses(1))
    async with (
        server,
        Crowd(server.sockets[0].getsockname(), watched, CONSUMER, fetches=False) as crowd,
    ):
        await crowd.start()
        await crowd.wait_until(lambda: False, "never", 30.0)


def test_a_member_that_fails_is_told():
    with pytest.raises(CommandError, match="the broker closed a connection"):
        asyncio.run(started_at_a_peer_that_closes())


async def waited(timeout_s: float) -> None:
    watched = Watched("g", "t", 1, Ownership(1), Pauses(1))
    async with Crowd(("127.0.0.1", 1), watched, CONSUMER, fetches=False) as crowd:
        await crowd.wait_until(lambda: False, "a shared topic", timeout_s)


def test_what_does_not_come_is_told_with_the_time():
    with pytest.raises(CommandError, match="a shared topic is not so after 0 s"):
        asyncio.run(waited(0.0))
