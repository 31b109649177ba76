"""A member that speaks JoinGroup, SyncGroup and Heartbeat, by the eager protocol: it gives up all
partitions before it joins. It reads the topics that stay: a classic assignment names topics, and
not which of two of one name.

The leader of a classic group assigns by ranges, and has all join anew when a topic has grown.
Source: KIP-62, KIP-345.
"""

import struct
from collections.abc import Mapping, Sequence

from simulation.groups.member import (
    GROUP,
    HANGS,
    HANGS_MS,
    INTERVAL_MS,
    REBALANCE_MS,
    SESSION_MS,
    GroupParts,
    WorkloadMember,
)
from simulation.groups.topics import LASTING
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer_protocol import (
    read_assignment,
    subscribed_topics,
    write_assignment,
)
from storage_engine.protocol.messages import heartbeat, join_group, leave_group, sync_group

PROTOCOL_TYPE = "consumer"
PROTOCOL = "range"
SUBSCRIPTION_VERSION = 1
SHORT_MS = (INTERVAL_MS // 2, INTERVAL_MS)
JOINS_ANEW = frozenset(
    {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.MEMBER_ID_REQUIRED,
    }
)
_Part = sync_group.SyncGroupRequest.SyncGroupRequestAssignment


class SimulatedClassicMember(WorkloadMember):
    protocol = "classic"

    def __init__(self, parts: GroupParts, instance_id: str | None = None) -> None:
        super().__init__(parts, LASTING, instance_id)
        self._leaves = False
        self._assigned_sizes: Mapping[str, int] | None = None
        """The partitions of each topic when it assigned as the leader; None: another leads."""

    def run(self) -> None:
        self._join()

    def leave(self, *, for_a_moment: bool = False) -> None:
        """A static member leaves without a word, for a moment or not."""
        self._leaves = True

    # --- joining ---

    def _join(self) -> None:
        self.is_settled = False
        self.let_go()
        if self._leaves:
            self._say_good_bye()
            return
        protocols = [
            join_group.JoinGroupRequest.JoinGroupRequestProtocol(
                name=PROTOCOL, metadata=encode_subscription(self.topics)
            )
        ]
        request = join_group.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
        )

        def on_answer(answer: join_group.JoinGroupResponse | None, _: int | None) -> None:
            if answer is None:
                if self.choose.random() < 0.5:
                    self._begin_anew()
                self.later(self._join)
                return
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            if code is not ErrorCode.NONE:
                self._refused(code, "join")
                return
            self.member_id = answer.member_id
            self.parts.joins += 1
            self.move_to(answer.generation_id)
            self._note(f"has joined as {self.member_id}, generation {self.epoch}")
            self._sync(answer)

        self.ask(join_group.API, 9, request, on_answer, named=frozenset())

    def _sync(self, joined: join_group.JoinGroupResponse) -> None:
        parts: list[_Part] = []
        self._assigned_sizes = None
        if joined.leader == self.member_id and not joined.skip_assignment:
            parts = self._assign(joined.members)
        request = sync_group.SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=parts,
        )

        def on_answer(answer: sync_group.SyncGroupResponse | None, sent_ms: int | None) -> None:
            if answer is None:
                self.later(self._join)
            elif answer.error_code:
                self._refused(ErrorCode.of(answer.error_code), "sync")
            else:
                self.extend(sent_ms)
                self._take_assignment(answer.assignment)
                self._next()

        self.ask(sync_group.API, 5, request, on_answer)

    def _take_assignment(self, assignment: bytes) -> None:
        found = read_assignment(assignment)
        assert found is not None, "a leader or the coordinator wrote it"
        sizes = self.parts.topics.sizes()
        shares = [(sizes[name][0], n) for name in found.partitions for n in found.partitions[name]]
        self._note(f"generation {self.epoch}: has {len(shares)}")
        self.take(shares)

    def _assign(
        self, members: Sequence[join_group.JoinGroupResponse.JoinGroupResponseMember]
    ) -> list[_Part]:
        """Assign as a leader does."""
        sizes = self.parts.topics.sizes()
        self._assigned_sizes = {name: sizes[name][1] for name in LASTING}
        shares: dict[str, dict[str, list[int]]] = {each.member_id: {} for each in members}
        for name, count in self._assigned_sizes.items():
            readers = sorted(
                each.member_id
                for each in members
                if name in (subscribed_topics(bytes(each.metadata)) or ())
            )
            for number in range(count if readers else 0):
                shares[readers[number % len(readers)]].setdefault(name, []).append(number)
        return [
            _Part(member_id=member_id, assignment=write_assignment(SUBSCRIPTION_VERSION, topics))
            for member_id, topics in shares.items()
        ]

    # --- heartbeats ---

    def _next(self) -> None:
        hangs = not self.parts.over and self.choose.random() < HANGS
        if hangs:
            self._note("hangs")
        self.later(self._beat, HANGS_MS if hangs else SHORT_MS)

    def _beat(self) -> None:
        sizes = self.parts.topics.sizes()
        known = self._assigned_sizes
        has_grown = known is not None and any(sizes[name][1] != known[name] for name in known)
        if self._leaves or has_grown:
            self._join()
            return
        self.commit_some()
        request = heartbeat.HeartbeatRequest(
            group_id=GROUP,
            generation_id=self.epoch,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

        def on_answer(answer: heartbeat.HeartbeatResponse | None, sent_ms: int | None) -> None:
            if answer is None:
                self.later(self._beat)
            elif answer.error_code:
                self._refused(ErrorCode.of(answer.error_code), "heartbeat")
            else:
                self.is_settled = True
                self.extend(sent_ms)
                self._next()

        self.ask(heartbeat.API, 4, request, on_answer)

    def _refused(self, code: ErrorCode, what: str) -> None:
        self._note(f"with generation {self.epoch} is refused: {what}: {code.name}")
        self.check_code(code, what)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self._end()
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._begin_anew()
            self.retry(self._join)
        elif code in JOINS_ANEW:
            self.let_go()
            self.later(self._join)
        elif what == "heartbeat":
            self.retry(self._beat)
        else:
            self.retry(self._join)

    def _begin_anew(self) -> None:
        """Be another member from now on."""
        self.let_go()
        self.member_id = ""
        self.claims.late.clear()

    def _say_good_bye(self) -> None:
        """Leave, and be gone whatever the answer."""
        if not self.member_id or self.instance_id is not None:
            self._end()
            return
        leaving = leave_group.LeaveGroupRequest.MemberIdentity(member_id=self.member_id)
        request = leave_group.LeaveGroupRequest(group_id=GROUP, members=[leaving])
        self.ask(leave_group.API, 5, request, lambda _answer, _sent_ms: self._end())


def encode_subscription(topics: Sequence[str]) -> bytes:
    """Encode the metadata of a member that holds no partitions."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    head = struct.pack(">hi", SUBSCRIPTION_VERSION, len(topics))
    # There are no user data, and no owned partitions.
    return head + names + struct.pack(">ii", -1, 0)
