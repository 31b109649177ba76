"""JoinGroup of the last members of large classic groups: the broker's processor time.

Rule: each measured JoinGroup comes by itself, and no generation begins meanwhile. The members
before them have closed their connections, which a group hears of only when their sessions end.
"""

import argparse
import asyncio
from collections.abc import Awaitable

from benchmarks.groups.brokers import TOPIC, Coordinator, Sides
from benchmarks.groups.classic_assignments import COOPERATIVE, EAGER, subscription
from benchmarks.groups.connections import MemberConnection
from benchmarks.groups.consumer_protocol_member import NOT_YET
from benchmarks.groups.members import JOIN_VERSION, joining
from benchmarks.groups.results import JOIN, Figures
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.framing import parse_response
from storage_engine.protocol.messages import describe_groups, join_group
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import report_line

MEASURED = 100
"""The joins of a group that are measured, its last ones."""
CONNECTIONS = 2 * MEASURED
_APART_S = 0.02
_SETTLE_S = 2.0
_DELAY_MS = 600_000
"""Until then no generation begins."""
_SESSION_MS = 1_800_000
_RETRIES = 600
_DESCRIBE_VERSION = 5
_RETRY_S = 0.1


def measure(sides: Sides, side: str, args: argparse.Namespace) -> Figures:
    """Return the figures of one side."""
    found: dict[str, float] = {}
    with sides.running(side, {"group.initial.rebalance.delay.ms": str(_DELAY_MS)}) as broker:
        for members in (args.classic_members // 10, args.classic_members):
            found[f"{members:,}th member: {JOIN}"] = asyncio.run(_measured(broker, members))
    return found


async def _measured(broker: Coordinator, members: int) -> float:
    """Return the milliseconds of a JoinGroup."""
    group = f"joins-{members}"
    last: list[tuple[MemberConnection, str]] = []
    waits: list[Awaitable[bytes]] = []
    try:
        for joined in range(0, members - MEASURED, MEASURED):
            await _fill(broker, group, joined, min(joined + MEASURED, members - MEASURED))
        last = await _named(broker, group, MEASURED)
        report_line(f"{broker.side}: a group of {members - MEASURED} members is filled")
        await asyncio.sleep(_SETTLE_S)
        idle_s = broker.cpu_s()
        await asyncio.sleep(MEASURED * _APART_S + _SETTLE_S)
        begun_s = broker.cpu_s()
        for each in last:
            waits.append(_join(group, *each))
            await asyncio.sleep(_APART_S)
        await asyncio.sleep(_SETTLE_S)
        joined_s = broker.cpu_s()
        _check_waiting(waits)
        found = await _members(broker, group)
        if found != members:
            raise CommandError(f"group '{group}' has {found} members, not {members}")
    finally:
        for connection, _ in last:
            connection.close()
    # Below zero where what the broker does beside them outweighs the joins.
    return 1000 * ((joined_s - begun_s) - (begun_s - idle_s)) / MEASURED


async def _fill(broker: Coordinator, group: str, joined: int, members: int) -> None:
    """Have members join, so that there are `members`, and close their connections."""
    named = await _named(broker, group, members - joined)
    for each in named:
        _join(group, *each)
    for _ in range(_RETRIES):
        if await _members(broker, group) == members:
            break
        await asyncio.sleep(_RETRY_S)
    for connection, _ in named:
        connection.close()


async def _members(broker: Coordinator, group: str) -> int:
    connection = await MemberConnection.open(broker.address)
    request = describe_groups.DescribeGroupsRequest(groups=[group])
    answer = await connection.ask(describe_groups.API, _DESCRIBE_VERSION, request)
    connection.close()
    return len(answer.groups[0].members)


def _protocols() -> list[join_group.JoinGroupRequest.JoinGroupRequestProtocol]:
    """Return what Kafka's client offers by default."""
    metadata = subscription(TOPIC, frozenset())
    protocol = join_group.JoinGroupRequest.JoinGroupRequestProtocol
    return [protocol(name=each, metadata=metadata) for each in (EAGER, COOPERATIVE)]


async def _named(broker: Coordinator, group: str, count: int) -> list[tuple[MemberConnection, str]]:
    """Return members with ids, who have not joined yet."""
    connections = [await MemberConnection.open(broker.address) for _ in range(count)]
    ids = await asyncio.gather(*(_member_id(each, group) for each in connections))
    return list(zip(connections, ids, strict=True))


async def _member_id(connection: MemberConnection, group: str) -> str:
    request = joining(group, "", _protocols(), _SESSION_MS)
    for _ in range(_RETRIES):
        answer = await connection.ask(join_group.API, JOIN_VERSION, request)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return answer.member_id
        if answer.error_code not in NOT_YET:
            break
        await asyncio.sleep(_RETRY_S)
    name = ErrorCode.of(answer.error_code).name
    raise CommandError(f"a JoinGroup without a member id got {name}, not MEMBER_ID_REQUIRED")


def _join(group: str, connection: MemberConnection, member_id: str) -> Awaitable[bytes]:
    request = joining(group, member_id, _protocols(), _SESSION_MS)
    return connection.begin(join_group.API, JOIN_VERSION, request)


def _check_waiting(waits: list[Awaitable[bytes]]) -> None:
    """CommandError where a JoinGroup was answered: it was refused, or a generation began."""
    for each in waits:
        if isinstance(each, asyncio.Future) and each.done():
            frame = memoryview(each.result())
            code = parse_response(join_group.API, JOIN_VERSION, frame).error_code
            raise CommandError(f"a JoinGroup was answered early: {ErrorCode.of(code).name}")
