"""Members over sockets, by both protocols: each joins, keeps its heartbeats up, and fetches what it
owns, again and again.

Rule: a fetch waits at the broker, so that it has a connection of its own, as in Kafka's client.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from benchmarks.groups.classic_assignments import EAGER, assigned, subscription
from benchmarks.groups.connections import MemberConnection
from benchmarks.groups.consumer_protocol_member import (
    AT_ONCE_S,
    NOT_YET,
    RETRY_S,
    VERSION,
    ConsumerProtocolMember,
)
from benchmarks.groups.fetches import MAX_WAIT_MS, Ownership, Pauses
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis import fetch
from storage_engine.protocol.apis.consumer_group_heartbeat import API as CONSUMER_HEARTBEAT
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from storage_engine.protocol.consumer_protocol import decode_assignment
from storage_engine.protocol.messages import heartbeat, join_group, leave_group, sync_group
from storage_engine.tools.errors import CommandError

FETCH_VERSION = 11
"""The newest version that names topics, and needs no id."""
JOIN_VERSION, SYNC_VERSION, BEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5

SESSION_MS, CLASSIC_BEAT_S = 45_000, 3.0
"""The defaults of Kafka's client."""
CLASSIC_REBALANCE_MS = 300_000
_PARTITION_BYTES = 1 << 20
_IDLE_S = 0.02


class Watched(NamedTuple):
    """The group, and where its members tell what they do."""

    group: str
    topic: str
    partitions: int
    ownership: Ownership
    pauses: Pauses


class Member(Protocol):
    """A member that works until it is told to leave."""

    name: str
    owned: frozenset[int]
    connection: MemberConnection

    async def work(self) -> None:
        """Join, and stay until cancelled."""
        ...

    async def leave(self) -> None:
        """Leave the group, after `work` has been cancelled."""
        ...


class _Base:
    """The part that both protocols share: ownership, which is told."""

    def __init__(self, watched: Watched, connection: MemberConnection, name: str) -> None:
        self._watched = watched
        self.connection = connection
        self.name = name
        self.owned: frozenset[int] = frozenset()

    def own(self, partitions: frozenset[int]) -> None:
        before, self.owned = self.owned, partitions
        self._watched.ownership.change(self.name, before, partitions, time.monotonic())


class ConsumerGroupMember(_Base):
    """A member of the consumer protocol."""

    def __init__(self, watched: Watched, connection: MemberConnection) -> None:
        self._member = ConsumerProtocolMember(watched.group, watched.topic)
        super().__init__(watched, connection, self._member.member_id)
        self.beats_s: list[float] = []
        """How long heartbeats took."""

    async def _beat(self, request: ConsumerGroupHeartbeatRequest) -> float:
        begun_s = time.monotonic()
        answer = await self.connection.ask(CONSUMER_HEARTBEAT, VERSION, request)
        self.beats_s.append(time.monotonic() - begun_s)
        wait_s = self._member.answered(answer)
        self.own(self._member.owned)
        return wait_s

    async def join(self) -> float:
        """Join, and return the seconds until the next heartbeat."""
        while not self._member.epoch:
            wait_s = await self._beat(self._member.heartbeat())
            if not self._member.epoch:
                await asyncio.sleep(wait_s)
        return wait_s

    async def work(self) -> None:
        wait_s = await self.join()
        while True:
            if wait_s != AT_ONCE_S:
                await asyncio.sleep(wait_s)
            wait_s = await self._beat(self._member.heartbeat())

    async def leave(self) -> None:
        request = self._member.farewell()
        self.own(frozenset())
        await self.connection.ask(CONSUMER_HEARTBEAT, VERSION, request)


class ClassicGroupMember(_Base):
    """A member of the classic protocol, eager or cooperative."""

    def __init__(self, watched: Watched, connection: MemberConnection, strategy: str) -> None:
        super().__init__(watched, connection, "")
        self._strategy = strategy
        self._generation = -1

    async def work(self) -> None:
        while True:
            await self._rebalance()
            while True:
                await asyncio.sleep(CLASSIC_BEAT_S)
                beat = heartbeat.HeartbeatRequest(
                    group_id=self._watched.group,
                    generation_id=self._generation,
                    member_id=self.name,
                )
                answer = await self.connection.ask(heartbeat.API, BEAT_VERSION, beat)
                if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                    break
                _check(answer.error_code, "a heartbeat")

    async def _rebalance(self) -> None:
        """Take part in generations until one has nothing more to give up."""
        while True:
            if self._strategy == EAGER:
                self.own(frozenset())
            answer = await self._join()
            given = await self._sync(answer)
            if given is None:
                continue
            gives_up = self.owned - given
            self.own(given)
            if not gives_up:
                return

    async def _join(self) -> join_group.JoinGroupResponse:
        while True:
            protocol = join_group.JoinGroupRequest.JoinGroupRequestProtocol(
                name=self._strategy, metadata=subscription(self._watched.topic, self.owned)
            )
            request = joining(self._watched.group, self.name, [protocol])
            answer = await self.connection.ask(join_group.API, JOIN_VERSION, request)
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.name = answer.member_id
            elif answer.error_code in NOT_YET:
                await asyncio.sleep(RETRY_S)
            else:
                _check(answer.error_code, "a JoinGroup")
                self._generation = answer.generation_id
                return answer

    async def _sync(self, joined: join_group.JoinGroupResponse) -> frozenset[int] | None:
        """Return the partitions of this generation; None if another has begun."""
        watched = self._watched
        assignments = {}
        if joined.leader == self.name:
            members = {each.member_id: each.metadata for each in joined.members}
            assignments = assigned(self._strategy, watched.topic, watched.partitions, members)
        item = sync_group.SyncGroupRequest.SyncGroupRequestAssignment
        request = sync_group.SyncGroupRequest(
            group_id=watched.group,
            generation_id=self._generation,
            member_id=self.name,
            protocol_type="consumer",
            protocol_name=self._strategy,
            assignments=[item(member_id=each, assignment=a) for each, a in assignments.items()],
        )
        answer = await self.connection.ask(sync_group.API, SYNC_VERSION, request)
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            return None
        _check(answer.error_code, "a SyncGroup")
        return frozenset(each.partition for each in decode_assignment(answer.assignment))

    async def leave(self) -> None:
        identity = leave_group.LeaveGroupRequest.MemberIdentity(member_id=self.name)
        request = leave_group.LeaveGroupRequest(group_id=self._watched.group, members=[identity])
        self.own(frozenset())
        answer = await self.connection.ask(leave_group.API, LEAVE_VERSION, request)
        _check(answer.error_code, "a LeaveGroup")


def joining(
    group: str,
    member_id: str,
    protocols: Sequence[join_group.JoinGroupRequest.JoinGroupRequestProtocol],
    session_ms: int = SESSION_MS,
) -> join_group.JoinGroupRequest:
    """Return the JoinGroup of a consumer."""
    return join_group.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=CLASSIC_REBALANCE_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols,
    )


async def fetch_owned(watched: Watched, connection: MemberConnection, member: Member) -> None:
    """Fetch what the member owns, until cancelled."""
    while True:
        asked = member.owned
        if not asked:
            await asyncio.sleep(_IDLE_S)
            continue
        partitions = [
            fetch.FetchPartition(watched.topic, number, 0, _PARTITION_BYTES)
            for number in sorted(asked)
        ]
        request = fetch.FetchRequest(MAX_WAIT_MS, 1, _PARTITION_BYTES, partitions)
        answer = await connection.ask(fetch.API, FETCH_VERSION, request)
        for each in answer.partitions:
            _check(each.error_code, "a fetch")
        # What it has given up meanwhile a client throws away.
        watched.pauses.fetched(member.name, asked & member.owned, time.monotonic())


def _check(code: int, what: str) -> None:
    if code:
        raise CommandError(f"{what} of the benchmark got {ErrorCode.of(code).name}")
