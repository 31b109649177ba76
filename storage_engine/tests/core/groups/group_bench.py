"""A group coordinator with a clock of its own and a log that can lose what is not replicated."""

import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from storage_engine.core.coordinator_log import (
    Answer,
    AnswerEach,
    AppendRecord,
    CountAppended,
    Moment,
    Replicated,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.events import (
    CheckDeadlines,
    CommitOffsets,
    Join,
    Joined,
    Leave,
    Left,
    MemberHeartbeat,
    OffsetsRead,
    ReadOffsets,
    RequestingMember,
    Sync,
    Synced,
    TransactionEnded,
    WakeAt,
)
from storage_engine.core.groups.records import GroupContent, OffsetRecord, Record, RecordKey
from storage_engine.core.groups.settings import GroupSettings
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.core.outcome import outcome

G = "g"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SESSION_MS = 10_000
REBALANCE_MS = 60_000
AT_ONCE = {"initial_delay_ms": 0}

Entry = tuple[RecordKey, Record | None, int | None] | tuple[int, bool]
"""A record, with the producer of its transaction; or a marker of a producer."""


def subscription(*topics: str) -> bytes:
    """Metadata of a consumer."""
    parts = [struct.pack(">hi", 0, len(topics))]
    parts += [struct.pack(">h", len(topic)) + topic.encode() for topic in topics]
    return b"".join(parts) + struct.pack(">i", -1)


def caller(joined: Joined, instance_id: str | None = None) -> RequestingMember:
    return RequestingMember(
        member_id=joined.member_id, generation=joined.generation, instance_id=instance_id
    )


class GroupBench:
    """Carries out the effects as a driver does; `log` has the records."""

    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(**settings)
        self.log: list[Entry] = []
        self.replicated = 0
        """Length of the part of the log that no failover loses."""
        self.now_ms = 0
        self.answers: dict[int, Any] = {}
        self.requests = 0
        self.ids = 0
        self._start()

    def _start(self) -> None:
        self.coordinator = GroupCoordinator(self.settings)
        self._ends: list[tuple[int, int]] = [(0, len(self.log))]
        self.wake_ms: int | None = None
        self._run(outcome(self.coordinator.restore(content_of(self.log), self.at)))

    @property
    def at(self) -> Moment:
        return Moment(self.now_ms, 1_000_000 + self.now_ms)

    def group(self, group_id: str = G):
        return self.coordinator.groups[group_id]

    def _run(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            match effect:
                case AppendRecord():
                    producer_id = None if effect.producer is None else effect.producer[0]
                    self.log.append((*effect.entry, producer_id))
                    self._ends.append((effect.number, len(self.log)))
                case CountAppended():
                    self._ends.append((effect.number, len(self.log)))
                case WakeAt():
                    self.wake_ms = effect.now_ms
                case AnswerEach():
                    self._run(effect.answers)
                case Answer():
                    assert effect.request not in self.answers, "answered twice"
                    self.answers[effect.request] = effect

    def step(self, event: Any) -> None:
        self._run(self.coordinator.step(event))

    def replicate(self) -> None:
        """All of the log."""
        self.replicated = len(self.log)
        if self._ends:
            number = self._ends[-1][0]
            self._ends = []
            self.step(Replicated(number=number))

    def fail_over(self, *, keep: int = 0) -> None:
        """Another broker takes over, with `keep` records more than were replicated."""
        del self.log[self.replicated + keep :]
        self._start()
        self.replicate()

    def advance(self, delay_ms: int) -> None:
        """Time passes, with a tick whenever one was asked for."""
        end_ms = self.now_ms + delay_ms
        while self.wake_ms is not None and self.wake_ms <= end_ms:
            self.now_ms, self.wake_ms = max(self.now_ms, self.wake_ms), None
            self.step(CheckDeadlines(at=self.at))
            self.replicate()
        self.now_ms = end_ms

    def end_transaction(self, producer_id: int, *, commits: bool, replicate: bool = True) -> None:
        """A marker is appended."""
        self.log.append((producer_id, commits))
        self.step(TransactionEnded(producer_id=producer_id, commits=commits))
        if replicate:
            self.replicate()

    # --- requests ---

    def ask(self, event_of: Callable[[int], Any], *, replicate: bool = True) -> int:
        """The number of the request."""
        self.requests += 1
        self.step(event_of(self.requests))
        if replicate:
            self.replicate()
        return self.requests

    def join(
        self,
        member_id: str = "",
        *,
        protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),),
        **how: Any,
    ) -> int:
        self.ids += 1
        fresh = f"m{self.ids}"
        return self.ask(
            lambda request: Join(
                **{
                    "request": request,
                    "group_id": G,
                    "member_id": member_id,
                    "fresh_member_id": fresh,
                    "session_timeout_ms": SESSION_MS,
                    "rebalance_timeout_ms": REBALANCE_MS,
                    "protocol_type": "consumer",
                    "protocols": protocols,
                    "at": self.at,
                    **how,
                }
            )
        )

    def enter(self, **how: Any) -> tuple[str, int]:
        """Join without an id, and again with the one promised: that id, and the request."""
        answer = self.answers[self.join(**how)]
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id, self.join(answer.member_id, **how)

    def joined(self, request: int) -> Joined:
        answer = self.answers[request]
        assert isinstance(answer, Joined) and answer.error is ErrorCode.NONE, answer
        return answer

    def sync(self, joined: Joined, assignments=None, *, replicate: bool = True, **caller) -> int:
        return self.ask(
            lambda request: Sync(
                request=request,
                group_id=G,
                caller=RequestingMember(
                    member_id=joined.member_id, generation=joined.generation, **caller
                ),
                assignments=assignments or {},
                at=self.at,
            ),
            replicate=replicate,
        )

    def synced(self, request: int) -> bytes:
        answer = self.answers[request]
        assert isinstance(answer, Synced) and answer.error is ErrorCode.NONE, answer
        return answer.assignment

    def heartbeat(self, member_id: str, generation: int, instance_id=None) -> ErrorCode:
        caller = RequestingMember(
            member_id=member_id, generation=generation, instance_id=instance_id
        )
        request = self.ask(
            lambda request: MemberHeartbeat(request=request, group_id=G, caller=caller, at=self.at)
        )
        return self.answers[request].error

    def leave(self, *callers: RequestingMember) -> tuple[ErrorCode, ...]:
        request = self.ask(
            lambda request: Leave(request=request, group_id=G, members=callers, at=self.at)
        )
        answer = self.answers[request]
        assert isinstance(answer, Left)
        return answer.codes

    def commit(
        self,
        offsets: dict[TopicPartition, int],
        caller: RequestingMember | None = None,
        *,
        producer: tuple[int, int] | None = None,
        replicate: bool = True,
        group_id: str = G,
    ) -> int:
        return self.ask(
            lambda request: CommitOffsets(
                request=request,
                group_id=group_id,
                caller=caller or RequestingMember(),
                offsets={
                    tp: OffsetRecord(offset=offset, commit_ms=self.at.wall_ms)
                    for tp, offset in offsets.items()
                },
                producer=producer,
                at=self.at,
            ),
            replicate=replicate,
        )

    def error(self, request: int) -> ErrorCode:
        return self.answers[request].error

    def read(self, *, require_stable: bool = False, group_id: str = G) -> OffsetsRead:
        request = self.ask(
            lambda request: ReadOffsets(
                request=request, group_id=group_id, partitions=None, require_stable=require_stable
            )
        )
        return self.answers[request]

    def offsets(self, group_id: str = G) -> dict[TopicPartition, int]:
        return {tp: each.offset for tp, each in self.read(group_id=group_id).offsets.items()}

    # --- whole groups ---

    def form(self, count: int, **how: Any) -> list[Joined]:
        """A stable group of so many, all in its first generation, each with an assignment that is
        its own id; the leader is the first."""
        rebalances = self.coordinator._rebalances
        rebalances._settings = replace(self.settings, initial_delay_ms=100)
        entered = [self.enter(**how) for _ in range(count)]
        self.advance(200)
        rebalances._settings = self.settings
        return self.assign([self.joined(request) for _, request in entered])

    def assign(self, members: list[Joined]) -> list[Joined]:
        """Let all of a generation sync; the leader is the first of the result."""
        members = sorted(members, key=lambda each: each.member_id != each.leader)
        parts = {each.member_id: each.member_id.encode() for each in members}
        requests = [self.sync(each, parts if not n else {}) for n, each in enumerate(members)]
        for each, request in zip(members, requests, strict=True):
            assert self.synced(request) == each.member_id.encode()
        return members


def content_of(log: Iterable[Entry]) -> GroupContent:
    """As `group_batches.replay` reads it."""
    content = GroupContent()
    for entry in log:
        if len(entry) == 2:
            content.end_transaction(entry[0], commits=entry[1])
        else:
            content.put(*entry)
    return content
