"""A connection of a member in the benchmark of groups, with a peer that is no broker."""

import asyncio
import resource

import pytest

from benchmarks.groups.connections import MemberConnection, allow_connections
from storage_engine.protocol.framing import encode_response_frame
from storage_engine.protocol.messages import heartbeat
from storage_engine.tools.errors import CommandError

REQUEST = heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
VERSION = 4


async def asked(answer: bytes, *, at_once: bool = True) -> int:
    """Return the error code in the answer of a peer that sends these bytes, and then closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        pieces = [answer] if at_once else [answer[:2], answer[2:7], answer[7:]]
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        connection = await MemberConnection.open(server.sockets[0].getsockname())
        try:
            return (await connection.ask(heartbeat.API, VERSION, REQUEST)).error_code
        finally:
            connection.close()


@pytest.mark.parametrize("at_once", [True, False])
def test_an_answer_is_whole_however_it_arrives(at_once):
    response = heartbeat.HeartbeatResponse(throttle_time_ms=0, error_code=27)
    frame = b"".join(
        bytes(piece) for piece in encode_response_frame(heartbeat.API, VERSION, 1, response)
    )
    assert asyncio.run(asked(frame, at_once=at_once)) == 27


def test_a_broker_that_closes_is_told():
    with pytest.raises(CommandError, match="the broker closed a connection"):
        asyncio.run(asked(b"\0"))


def test_more_connections_than_the_system_allows_are_refused_in_one_line():
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system has no limit of open files")
    with pytest.raises(CommandError, match="raise 'ulimit -Hn'"):
        allow_connections(hard)
