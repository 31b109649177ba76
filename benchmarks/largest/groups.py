"""The largest groups that clients may make, for `benchmarks.largest.states`."""

from collections.abc import Iterator
from itertools import islice

from storage_engine.core.coordinator_log import (
    AnswerEach,
    AppendRecord,
    Moment,
    Replicated,
    TickAgain,
)
from storage_engine.core.groups.classic.group import ClassicGroup, GroupState
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.deadlines import DUE_MAX
from storage_engine.core.groups.events import (
    CheckDeadlines,
    CommitOffsets,
    Effect,
    ExpireOffsets,
    Join,
    Joined,
    MemberHeartbeat,
    RequestingMember,
    Sync,
    TopicsDeleted,
)
from storage_engine.core.groups.records import GroupContent, GroupRecord, OffsetRecord
from storage_engine.core.groups.settings import GroupSettings
from storage_engine.core.ids import TopicPartition

SESSION_MS, REBALANCE_MS = 10_000, 60_000
NAMES = tuple((f"p{number}", b"") for number in range(100))
"""The protocols of a member: as many as it may offer."""
ANSWERS_A_TURN = 100
"""The number of answers in a turn, as the runner of a coordinator draws them."""
G = "group"

Steps = Iterator[str]
"""Each item is the name of the step that has just been done; "": one that does not count."""


def named(name: str, pieces: Iterator[None]) -> Steps:
    """Do work in pieces, each of which is a step of that name."""
    for _ in pieces:
        yield name
    yield name


class Members:
    """A full group; each member offers all the protocols that it may."""

    is_static = True
    asks_for_id = False

    def __init__(self, count: int) -> None:
        self.count = count
        self.fill()

    def fill(self) -> None:
        """Begin a new group, with all members."""
        self.now_ms = 0
        self.begin()
        for number in range(self.members()):
            self.join(number)

    def members(self) -> int:
        return self.count

    def begin(self) -> None:
        self.core = GroupCoordinator(GroupSettings(max_size=self.members() + 1))
        self.core.step(Replicated(number=0))

    def protocols(self, number: int) -> tuple[tuple[str, bytes], ...]:
        del number
        return NAMES

    @property
    def at(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    @property
    def group(self) -> ClassicGroup:
        group = self.core.groups[G]
        assert isinstance(group, ClassicGroup)
        return group

    def join(self, number: int, member_id: str = "") -> list[Effect]:
        event = Join(
            request=number,
            group_id=G,
            member_id=member_id,
            fresh_member_id=f"client-with-an-id-as-long-as-usual-{number:016d}",
            instance_id=f"i{number}" if self.is_static else None,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=self.protocols(number),
            asks_for_id=self.asks_for_id,
            at=self.at,
        )
        return list(self.core.step(event))

    def refusal(self) -> str | None:
        """Return the error for one member more than there may be."""
        self.join(self.count)
        effects = self.join(self.count + 1)
        return next((each.error.name for each in effects if isinstance(each, Joined)), None)

    def left(self) -> int:
        return len(self.group.members) + len(self.group.promised)

    def deadlines(self, after_ms: int) -> list[Effect]:
        self.now_ms += after_ms
        return list(self.core.step(CheckDeadlines(at=self.at)))

    def generation(self) -> Steps:
        """Complete a rebalance, and answer the members that have joined."""
        effects: list[Effect] = []
        while self.group.state is GroupState.PREPARING:
            effects = self.deadlines(3_000)
            yield "a generation begins"
        (answers,) = (each.answers for each in effects if isinstance(each, AnswerEach))
        while list(islice(answers, ANSWERS_A_TURN)):
            yield "answers of a turn"

    def caller(self, member_id: str) -> RequestingMember:
        return RequestingMember(member_id=member_id, generation=self.group.generation)

    def sync(self, member_id: str, assignments: dict[str, bytes]) -> list[Effect]:
        caller = self.caller(member_id)
        event = Sync(request=1, group_id=G, caller=caller, assignments=assignments, at=self.at)
        return list(self.core.step(event))

    def stable(self) -> Steps:
        yield from self.generation()
        leader = self.group.leader or ""
        for each in [member for member in self.group.members if member != leader]:
            self.sync(each, {})
        yield ""
        effects = self.sync(leader, dict.fromkeys(self.group.members, b"part"))
        yield "SyncGroup of the leader"
        (record,) = (each.entry[1] for each in effects if isinstance(each, AppendRecord))
        assert isinstance(record, GroupRecord)
        self.record = record
        self.core.step(Replicated(number=self.group.number))
        yield "the record is replicated"

    def steps(self) -> Steps:
        self.join(0, next(iter(self.group.members)))
        yield "JoinGroup"
        yield from self.stable()
        self.join(1)
        yield "a static member comes back"
        self.begin()
        content = GroupContent(groups={G: self.record})
        yield from named("restored", self.core.restore(content, self.at))
        self.core.step(Replicated(number=0))
        yield ""
        while self.left():
            self.deadlines(SESSION_MS)
            yield "sessions end"


class SilentMembers(Members):
    """Members that only send heartbeats: all of them are late at once."""

    is_static = False

    def steps(self) -> Steps:
        yield from self.stable()
        self.join(0, self.group.leader or "")
        yield "a rebalance begins"
        yield from self.late("others do not join again", left=1)
        self.fill()
        yield ""
        yield from self.generation()
        yield from self.late("nobody syncs", left=0)

    def late(self, name: str, left: int) -> Steps:
        while self.left() > left:
            self.now_ms += SESSION_MS // 2
            for member_id in self.group.members:
                caller = self.caller(member_id)
                self.core.step(MemberHeartbeat(request=1, group_id=G, caller=caller, at=self.at))
            yield ""
            for _ in range(2 + self.count // DUE_MAX):
                self.deadlines(0)
                yield name


class Protocols(Members):
    """Members with different lists of protocols."""

    def protocols(self, number: int) -> tuple[tuple[str, bytes], ...]:
        return (NAMES[0], *((f"own{number}-{place}", b"") for place in range(99)))

    def refusal(self) -> str | None:
        effects = self.join(self.count)
        return next((each.error.name for each in effects if isinstance(each, Joined)), None)


class PromisedIds(Members):
    """Promised member ids with which nobody joins."""

    is_static = False
    asks_for_id = True

    def refusal(self) -> str | None:
        effects = self.join(self.count)
        return next((each.error.name for each in effects if isinstance(each, Joined)), None)

    def steps(self) -> Steps:
        while self.left():
            self.deadlines(SESSION_MS)
            yield "ids expire"


class Subscriptions(Members):
    """Members that subscribe to different topics with short names."""

    EACH = 100

    def members(self) -> int:
        return self.count // self.EACH

    def protocols(self, number: int) -> tuple[tuple[str, bytes], ...]:
        topics = [b"%04x" % each for each in range(number * self.EACH, (number + 1) * self.EACH)]
        names = b"".join(len(each).to_bytes(2, "big") + each for each in topics)
        return (("range", bytes(2) + self.EACH.to_bytes(4, "big") + names),)

    def refusal(self) -> str | None:
        """Return "not read" if topics are not read when there is one member more."""
        self.join(self.members())
        for _ in self.stable():
            pass
        topics = self.group.subscribed()
        self.fill()
        return "not read" if topics is None else None

    def steps(self) -> Steps:
        yield from self.stable()
        assert self.group.subscribed() is not None
        self.group._subscribed = None
        offsets = {TopicPartition("t", 0): OffsetRecord(offset=1, commit_ms=0)}
        caller = self.caller(self.group.leader or "")
        event = CommitOffsets(request=1, group_id=G, caller=caller, offsets=offsets, at=self.at)
        self.core.step(event)
        yield ""
        self.core.step(ExpireOffsets(at=self.at))
        yield "topics are read"


class GroupOffsets(Members):
    """The offsets of a group without members."""

    def members(self) -> int:
        return 0

    def __init__(self, count: int) -> None:
        super().__init__(count)
        for number in range(count):
            tp = TopicPartition(f"t{number % 2}", number)
            offsets = {tp: OffsetRecord(offset=1, commit_ms=0)}
            caller = RequestingMember()
            event = CommitOffsets(request=1, group_id=G, caller=caller, offsets=offsets, at=self.at)
            self.core.step(event)

    def refusal(self) -> str | None:
        return None

    def left(self) -> int:
        return len(self.group.offsets.partitions()) if G in self.core.groups else 0

    def ticks(self, name: str, effects: list[Effect]) -> Steps:
        while any(isinstance(each, TickAgain) for each in effects):
            effects = list(self.core.step(ExpireOffsets(at=self.at)))
            yield name

    def steps(self) -> Steps:
        effects = list(self.core.step(TopicsDeleted(topics=frozenset({"t0"}))))
        yield "a topic is deleted"
        yield from self.ticks("a topic is deleted", effects)
        self.now_ms = GroupSettings().retention_ms
        yield from self.ticks("offsets expire", [TickAgain()])
