"""Members of one group and its coordinator, with everything that can go wrong between them.

Requests and answers are late, lost or out of order; members come, go, die, pause and are started
again under their instance id; the coordinator is lost with any part of the log that is not
replicated. What must always hold is checked where it happens:

    a partition has one owner in a generation, by the answers that the coordinator gives
    a commit is stored only for the generation that was recorded last, and only of its members
    nothing is answered before its record is replicated
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from storage_engine.core.coordinator_log import (
    Answer,
    AnswerEach,
    AppendRecord,
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
    MemberHeartbeat,
    RequestingMember,
    Sync,
    Synced,
    WakeAt,
)
from storage_engine.core.groups.records import GroupRecord, OffsetKey, OffsetRecord
from storage_engine.core.groups.settings import GroupSettings
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.core.groups.group_bench import G, content_of, subscription
from storage_engine.tests.core.outcome import outcome

PARTITIONS = 5
SESSION_MS = 10_000
REBALANCE_MS = 15_000
HEARTBEAT_MS = 3_000
PATIENCE_MS = {"join": 25_000, "sync": 20_000, "heartbeat": 5_000}
LETTER_LOST = 0.05
CALM = 80
"""Turns without a change in the end: longer than any timeout but that of a rebalance."""


class Violation(AssertionError):
    """A promise is broken."""


@dataclass(slots=True)
class Asked:
    """A request under way."""

    client: "Client"
    life: int
    what: str
    event: Any


class Client:
    """A member as clients are: it joins, syncs, heartbeats and commits what it owns."""

    def __init__(self, world: "World", name: str, instance_id: str | None) -> None:
        self.world = world
        self.name = name
        self.instance_id = instance_id
        self.life = 0
        self.alive = True
        self.paused_until_ms = 0
        self.start()

    def start(self) -> None:
        self.life += 1
        self.alive = True
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.step = "join"
        self.asked_ms: int | None = None
        self.beat_ms = 0
        self.joined: Joined | None = None

    @property
    def caller(self) -> RequestingMember:
        return RequestingMember(
            member_id=self.member_id, generation=self.generation, instance_id=self.instance_id
        )

    def act(self) -> None:
        """Go on, unless it waits for an answer."""
        now_ms = self.world.now_ms
        if not self.alive or now_ms < self.paused_until_ms:
            return
        if self.asked_ms is not None:
            if now_ms - self.asked_ms < PATIENCE_MS[self.step]:
                return
            self.step = "join"
        if self.step == "heartbeat":
            if now_ms < self.beat_ms + HEARTBEAT_MS:
                if self.owned and self.world.random.random() < 0.3:
                    self.commit()
                return
            self.beat_ms = now_ms
        self.asked_ms = now_ms
        self.world.ask(self, self.step, getattr(self, f"_{self.step}"))

    def _join(self, request: int) -> Join:
        self.owned = frozenset()
        return Join(
            request=request,
            group_id=G,
            member_id=self.member_id,
            fresh_member_id=f"{self.name}-{request}",
            instance_id=self.instance_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("range", subscription("t")),),
            at=self.world.at,
        )

    def _sync(self, request: int) -> Sync:
        assert self.joined is not None
        names = [each.member_id for each in self.joined.members]
        parts = {
            name: bytes(p for p in range(PARTITIONS) if p % len(names) == index)
            for index, name in enumerate(names)
        }
        return Sync(
            request=request,
            group_id=G,
            caller=self.caller,
            assignments=parts,
            at=self.world.at,
        )

    def _heartbeat(self, request: int) -> MemberHeartbeat:
        return MemberHeartbeat(request=request, group_id=G, caller=self.caller, at=self.world.at)

    def commit(self) -> None:
        value = self.world.next_value()
        self.world.ask(
            self,
            "commit",
            lambda request: CommitOffsets(
                request=request,
                group_id=G,
                caller=self.caller,
                offsets={
                    TopicPartition("t", p): OffsetRecord(offset=value, commit_ms=0)
                    for p in self.owned
                },
                at=self.world.at,
            ),
        )

    def leave(self) -> None:
        if self.member_id:
            self.world.ask(
                self,
                "leave",
                lambda request: Leave(
                    request=request, group_id=G, members=(self.caller,), at=self.world.at
                ),
            )
        self.alive = False

    def hear(self, asked: Asked, answer: Any) -> None:
        if asked.life != self.life or not self.alive or asked.what in ("commit", "leave"):
            return
        if asked.what != self.step:
            return
        self.asked_ms = None
        match answer.error:
            case ErrorCode.NONE if asked.what == "join":
                self.joined, self.member_id = answer, answer.member_id
                self.generation = answer.generation
                self.step = "sync"
            case ErrorCode.NONE if asked.what == "sync":
                self.owned = frozenset(answer.assignment)
                self.beat_ms = self.world.now_ms
                self.step = "heartbeat"
            case ErrorCode.NONE | ErrorCode.NOT_COORDINATOR:
                pass
            case ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id
            case ErrorCode.FENCED_INSTANCE_ID:
                self.alive = False
            case ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id, self.step = "", "join"
            case ErrorCode.ILLEGAL_GENERATION | ErrorCode.REBALANCE_IN_PROGRESS:
                self.step = "join"
            case other:
                raise Violation(f"{asked.what} of {self.name} was answered {other}")


class World:
    """One run; `happen` as often as one likes, then `settle`."""

    def __init__(
        self,
        seed: int,
        factory: Callable[..., GroupCoordinator] = GroupCoordinator,
        client: type[Client] = Client,
    ) -> None:
        self.random = random.Random(seed)
        self.factory = factory
        self.faulty = True
        self.now_ms = 0
        self.log: list[Any] = []
        self.replicated = 0
        self.requests = 0
        self.values = 0
        self.asked: dict[int, Asked] = {}
        self.letters: list[Callable[[], None]] = []
        self.owners: dict[tuple[int, int], str] = {}
        self.generations = self.elections = self.commits = 0
        self.clients = [client(self, f"c{n}", f"i{n}" if n % 3 == 0 else None) for n in range(4)]
        self.elect()

    @property
    def at(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    def next_value(self) -> int:
        self.values += 1
        return self.values

    # --- the coordinator ---

    def elect(self) -> None:
        """Another coordinator, with what is replicated and perhaps more."""
        self.elections += 1
        del self.log[self.random.randint(self.replicated, len(self.log)) :]
        self.coordinator = self.factory(GroupSettings(initial_delay_ms=500))
        self.ends = [(0, len(self.log))]
        self.wake_ms: int | None = None
        for asked in self.asked.values():
            self.answer(asked, Answer(request=0, error=ErrorCode.NOT_COORDINATOR))
        self.asked = {}
        self.run(outcome(self.coordinator.restore(content_of(self.log), self.at)), None)

    def run(self, effects: list[Any], event: Any) -> None:
        for effect in effects:
            match effect:
                case AppendRecord():
                    key, record = effect.entry
                    if isinstance(key, OffsetKey):
                        self.check_commit(event)
                    self.log.append((key, record, None))
                    self.ends.append((effect.number, len(self.log)))
                    if isinstance(record, GroupRecord):
                        self.generations += 1
                case WakeAt():
                    self.wake_ms = effect.now_ms
                case AnswerEach():
                    self.run(list(effect.answers), event)
                case Answer():
                    asked = self.asked.pop(effect.request)
                    self.check_answer(asked, effect)
                    self.answer(asked, effect)

    def answer(self, asked: Asked, answer: Any) -> None:
        self.mail(lambda: asked.client.hear(asked, answer))

    def step(self, event: Any) -> None:
        self.run(self.coordinator.step(event), event)

    def ask(self, client: Client, what: str, event_of: Callable[[int], Any]) -> None:
        self.requests += 1
        request = self.requests
        asked = Asked(client, client.life, what, event_of(request))

        def arrive() -> None:
            self.asked[request] = asked
            self.step(asked.event)

        self.mail(arrive)

    def mail(self, letter: Callable[[], None]) -> None:
        if not (self.faulty and self.random.random() < LETTER_LOST):
            self.letters.append(letter)

    def replicate(self) -> None:
        self.replicated = self.random.randint(self.replicated, len(self.log))
        number = None
        while self.ends and self.ends[0][1] <= self.replicated:
            number, _ = self.ends.pop(0)
        if number is not None:
            self.step(Replicated(number=number))

    def advance(self, delay_ms: int) -> None:
        end_ms = self.now_ms + delay_ms
        while self.wake_ms is not None and self.wake_ms <= end_ms:
            self.now_ms, self.wake_ms = max(self.now_ms, self.wake_ms), None
            self.step(CheckDeadlines(at=self.at))
        self.now_ms = end_ms

    # --- what must hold ---

    def recorded(self) -> GroupRecord | None:
        records = (each[1] for each in reversed(self.log) if isinstance(each[1], GroupRecord))
        return next(records, None)

    def check_commit(self, event: CommitOffsets) -> None:
        self.commits += 1
        newest = self.recorded()
        if newest is None or event.caller.generation != newest.generation:
            raise Violation(f"a commit of {event.caller} was stored after {newest}")
        if event.caller.member_id not in {m.member_id for m in newest.members}:
            raise Violation(f"{event.caller} is not in {newest}, and has committed")

    def check_answer(self, asked: Asked, answer: Any) -> None:
        if answer.error is not ErrorCode.NONE:
            return
        if isinstance(answer, Synced):
            generation = asked.event.caller.generation
            for partition in answer.assignment:
                owner = self.owners.setdefault((generation, partition), asked.client.name)
                if owner != asked.client.name:
                    raise Violation(f"{partition} has two owners in generation {generation}")
            kept = [each[1] for each in self.log[: self.replicated]]
            if generation not in {r.generation for r in kept if isinstance(r, GroupRecord)}:
                raise Violation(f"generation {generation} is told and may be lost")
        if asked.what == "commit":
            kept_offsets = {
                each[1].offset
                for each in self.log[: self.replicated]
                if isinstance(each[1], OffsetRecord)
            }
            if {each.offset for each in asked.event.offsets.values()} - kept_offsets:
                raise Violation("a commit is acknowledged and may be lost")

    # --- what happens ---

    def happen(self) -> None:
        dice = self.random.random()
        client = self.random.choice(self.clients)
        if dice < 0.45 and self.letters:
            self.letters.pop(self.random.randrange(len(self.letters)))()
        elif dice < 0.6:
            self.replicate()
        elif dice < 0.7:
            self.advance(self.random.choice([100, 500, 2_000, 4_000]))
        elif dice < 0.97:
            client.act()
        elif dice < 0.975:
            self.elect()
        elif dice < 0.98:
            client.alive = False
        elif dice < 0.985:
            client.leave()
        elif dice < 0.99:
            client.paused_until_ms = self.now_ms + self.random.choice([1_000, 12_000, 40_000])
        elif not client.alive:
            client.start()

    def settle(self) -> None:
        """The faults stop: whoever is there shares everything out."""
        self.faulty = False
        for client in self.clients:
            client.paused_until_ms = 0
        calm = 0
        for _ in range(1_200):
            while self.letters:
                self.letters.pop(0)()
            self.replicated = max(self.replicated, len(self.log) - 1)
            self.replicate()
            for client in self.clients:
                client.act()
            self.advance(250)
            alive = [client for client in self.clients if client.alive]
            owned = sorted(p for client in alive for p in client.owned)
            is_shared = not alive or owned == list(range(PARTITIONS))
            calm = calm + 1 if is_shared else 0
            if calm == CALM:
                break
        else:
            told = {c.name: (c.step, c.generation, sorted(c.owned)) for c in alive}
            raise Violation(f"not shared out in the end: {told}")
        self.check_offsets()

    def check_offsets(self) -> None:
        newest = {
            each[0].partition: each[1].offset
            for each in self.log
            if isinstance(each[1], OffsetRecord)
        }
        group = self.coordinator.groups.get(G)
        committed = {} if group is None else group.offsets.committed
        if {tp: each.offset for tp, each in committed.items()} != newest:
            raise Violation(f"the log has {newest}, the coordinator {committed}")
