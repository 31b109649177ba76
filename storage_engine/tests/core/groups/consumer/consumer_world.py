"""Members of one consumer group and its coordinator, with everything that can go wrong between
them: requests and answers are late, lost or come twice; members come, go, die and pause; topics
come, grow, go and come back under another id; the coordinator is lost with any part of the log that
is not replicated. A member may speak the classic protocol. What must hold is checked at every step:

    no two members can commit one partition at once, by the answers that they have got
    a partition has one owner by the coordinator's state, which is that of the log
    the group is wholly of one kind at each end of a batch
    nothing is answered before its records are replicated
"""

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

from storage_engine.core.coordinator_log import (
    Answer,
    AnswerEach,
    AppendRecord,
    Moment,
    Replicated,
    UnreadableRecord,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.groups.consumer.events import (
    AssignmentComputed,
    ComputeAssignment,
    PatternResolved,
    ResolvePattern,
    TopicShape,
    TopicShapesChanged,
)
from storage_engine.core.groups.consumer.group import ConsumerGroup
from storage_engine.core.groups.consumer.records import (
    ConsumerGroupKey,
    CurrentAssignmentKey,
    TargetKey,
)
from storage_engine.core.groups.consumer.topics import Topics
from storage_engine.core.groups.coordinator import GroupCoordinator
from storage_engine.core.groups.events import (
    CheckDeadlines,
    CommitOffsets,
    RequestingMember,
    WakeAt,
)
from storage_engine.core.groups.records import OffsetKey, OffsetRecord
from storage_engine.core.groups.settings import GroupSettings
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.core.groups.consumer.consumer_members import (
    Asked,
    ClassicMember,
    Member,
    Part,
    Violation,
)
from storage_engine.tests.core.groups.group_bench import G, content_of
from storage_engine.tests.core.outcome import outcome

COUNTED = (
    "content", "instances", "owners", "subscriptions", "subscribers", "with_pattern",
    "with_assignor", "with_protocol", "classic_count", "protocols_bytes", "named_count",
    "reconciled_count", "epoch", "metadata_hash", "target_epoch", "state",
)  # fmt: skip
"""All of a group that follows from its records."""

LETTER_LOST = 0.05
LETTER_TWICE = 0.02
CALM = 60
"""Turns without a change in the end."""


class World:
    """One run; `happen` as often as one likes, then `settle`."""

    def __init__(
        self,
        seed: int,
        factory: Callable[..., GroupCoordinator] = GroupCoordinator,
        *,
        classic: int = 0,
    ) -> None:
        self.random = random.Random(seed)
        self.factory = factory
        self.faulty = True
        self.now_ms = 0
        self.incarnation = 0
        self.topics: dict[str, TopicShape] = {}
        self.log: list[Any] = []
        self.replicated = 0
        self.requests = self.values = 0
        self.callers: dict[int, RequestingMember] = {}
        """By the offset that was committed."""
        self.asked: dict[int, Asked] = {}
        self.letters: list[Callable[[], None]] = []
        self.commits = self.moves = self.elections = self.conversions = 0
        self.was_consumer = False
        self.migrates = classic > 0
        self.members: list[Member] = []
        for number in range(5):
            kind = ClassicMember if number < classic else Member
            instance_id = f"i{number}" if number % 3 == 0 else None
            self.members.append(kind(self, f"m{number}", instance_id))
        self.create("t", 3)
        self.create("u", 2)
        self.elect()
        for member in self.members:
            member.start()

    @property
    def at(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    # --- topics ---

    def create(self, name: str, partitions: int) -> None:
        self.incarnation += 1
        self.topics = {**self.topics, name: TopicShape(UUID(int=self.incarnation), partitions)}

    def change_topics(self) -> None:
        name = self.random.choice(["t", "u"])
        if name not in self.topics:
            self.create(name, self.random.randint(1, 4))
        elif self.random.random() < 0.5:
            shape = self.topics[name]
            self.topics = {**self.topics, name: shape._replace(partitions=shape.partitions + 1)}
        else:
            self.topics = {each: at for each, at in self.topics.items() if each != name}
            if self.random.random() < 0.5:
                self.create(name, 2)
        self.tell_topics(frozenset({name}))

    def tell_topics(self, changed: frozenset[str]) -> None:
        self.step(TopicShapesChanged(topics=self.topics, changed=changed, at=self.at))

    def parts_of(self, partitions: Any) -> frozenset[Part]:
        return frozenset(
            (self.topics[name].topic_id, number)
            for name, ns in partitions.items()
            if name in self.topics
            for number in ns
        )

    def shared_out(self, member_ids: list[str]) -> dict[str, bytes]:
        shared = {}
        for place, member_id in enumerate(member_ids):
            data = b"\0\0" + len(self.topics).to_bytes(4, "big")
            for name, shape in self.topics.items():
                ns = [n for n in range(shape.partitions) if n % len(member_ids) == place]
                data += b"\0\1" + name.encode() + len(ns).to_bytes(4, "big")
                data += b"".join(n.to_bytes(4, "big") for n in ns)
            shared[member_id] = data + b"\xff\xff\xff\xff"
        return shared

    # --- the coordinator ---

    def elect(self) -> None:
        """Another coordinator, with what is replicated and perhaps more, but no half batch."""
        self.elections += 1
        cuts = [n for n in self.batch_ends() if n >= self.replicated]
        del self.log[self.random.choice(cuts) :]
        self.coordinator = self.factory(GroupSettings(initial_delay_ms=500))
        self.mirror = content_of(each[:3] for each in self.log)
        self.ends = [(0, len(self.log))]
        self.wake_ms: int | None = None
        for asked in self.asked.values():
            self.answer(asked, Answer(request=0, error=ErrorCode.NOT_COORDINATOR))
        self.asked = {}
        content = content_of(each[:3] for each in self.log)
        self.run(outcome(self.coordinator.restore(content, self.at)), None)
        coordinator = self.coordinator

        def tell() -> None:
            if self.coordinator is coordinator:
                self.tell_topics(frozenset(self.topics))

        self.letters.append(tell)

    def batch_ends(self) -> list[int]:
        begins = [n for n, each in enumerate(self.log) if each[3]]
        return sorted({0, *begins, len(self.log)})

    def run(self, effects: list[Any], event: Any) -> None:
        appended = False
        for effect in effects:
            match effect:
                case AppendRecord():
                    if appended and not effect.with_last:
                        self.check_batch_end()
                    self.append(effect, begins=not (appended and effect.with_last))
                    appended = True
                case WakeAt():
                    self.wake_ms = effect.now_ms
                case AnswerEach():
                    self.run(list(effect.answers), event)
                case Answer():
                    asked = self.asked.pop(effect.request, None)
                    if asked is not None:
                        self.check_answer(effect)
                        self.answer(asked, effect)
                case ComputeAssignment():
                    self.letters.append(self._computed(effect))
                case ResolvePattern():
                    self.letters.append(self._resolved(effect))
        if appended:
            self.check_batch_end()
        is_consumer = isinstance(self.coordinator.groups.get(G), ConsumerGroup)
        self.conversions += is_consumer != self.was_consumer
        self.was_consumer = is_consumer
        self.check_state()

    def append(self, effect: AppendRecord[Any], *, begins: bool) -> None:
        key, record = effect.entry
        if isinstance(key, OffsetKey):
            assert isinstance(record, OffsetRecord)
            self.check_commit(self.callers[record.offset])
        self.check_epoch(key, record)
        self.log.append((key, record, None, begins))
        self.mirror.put(key, record, None)
        self.ends.append((effect.number, len(self.log)))

    def _computed(self, effect: ComputeAssignment) -> Callable[[], None]:
        coordinator = self.coordinator

        def answer() -> None:
            if self.coordinator is coordinator:
                targets = None if self.faulty and self.random.random() < 0.1 else effect.compute()
                self.step(
                    AssignmentComputed(group_id=G, epoch=effect.epoch, targets=targets, at=self.at)
                )

        return answer

    def _resolved(self, effect: ResolvePattern) -> Callable[[], None]:
        coordinator = self.coordinator

        def answer() -> None:
            if self.coordinator is coordinator:
                event = PatternResolved(
                    group_id=G, pattern="p", topics=frozenset(self.topics), at=self.at
                )
                self.step(event)

        return answer

    def answer(self, asked: Asked, answer: Any) -> None:
        self.mail(lambda: asked.client.hear(asked, answer))

    def step(self, event: Any) -> None:
        self.run(self.coordinator.step(event), event)

    def ask(self, client: Member, event_of: Callable[[int], Any]) -> None:
        self.requests += 1
        request = self.requests
        asked = Asked(client, client.life, client.connection, event_of(request))

        def arrive() -> None:
            self.asked[request] = asked
            self.step(asked.event)

        self.mail(arrive)
        if self.faulty and self.random.random() < LETTER_TWICE:
            # The answer to the second copy goes nowhere.
            again = event_of(-request)
            self.letters.append(lambda: self.step(again))

    def forget(self, client: Member) -> None:
        """Close the connection of a client."""
        client.connection += 1
        for request in [n for n, asked in self.asked.items() if asked.client is client]:
            del self.asked[request]

    def commit(self, client: Member, caller: RequestingMember) -> None:
        self.values += 1
        value = self.values
        self.callers[value] = caller
        names = {shape.topic_id: name for name, shape in self.topics.items()}
        offsets = {
            TopicPartition(names[topic], number): OffsetRecord(offset=value, commit_ms=0)
            for topic, number in client.held
            if topic in names
        }
        self.ask(
            client,
            lambda request: CommitOffsets(
                request=request,
                group_id=G,
                caller=caller,
                offsets=offsets,
                knows_epochs=True,
                at=self.at,
            ),
        )

    def mail(self, letter: Callable[[], None]) -> None:
        if not (self.faulty and self.random.random() < LETTER_LOST):
            self.letters.append(letter)

    def replicate(self) -> None:
        ends = [n for n in self.batch_ends() if n >= self.replicated]
        self.replicated = self.random.choice(ends) if self.faulty else ends[-1]
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

    def epoch_of(self, member_id: str) -> int | None:
        """The epoch that the coordinator of the consumer group has for a member."""
        group = self.coordinator.groups.get(G)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return None
        return group.current(member_id).member_epoch

    def check_batch_end(self) -> None:
        """Check that a failover would find the group wholly of one kind."""
        kinds = (G in self.mirror.groups) + (G in self.mirror.consumer_groups)
        group = self.coordinator.groups.get(G)
        if kinds > 1 or (not kinds and isinstance(group, ConsumerGroup) and group.members):
            raise Violation(f"the group is of {kinds} kinds at the end of a batch")

    def check_epoch(self, key: Any, record: Any) -> None:
        """Check that no epoch goes back but that of a member that leaves or comes."""
        known = self.mirror.consumer_groups.get(G)
        before: Any = None
        if known is not None and record is not None:
            match key:
                case ConsumerGroupKey():
                    before = known.group and known.group.epoch
                case TargetKey():
                    before = known.target and known.target.epoch
                case CurrentAssignmentKey() if record.member_epoch > 0:
                    current = known.current.get(key.member_id)
                    before = current and current.member_epoch - 1
        now = getattr(record, "epoch", None) or getattr(record, "member_epoch", None)
        if before is not None and now is not None and now <= before:
            raise Violation(f"the epoch of {key} goes from {before} to {now}")

    def check_state(self) -> None:
        group = self.coordinator.groups.get(G)
        if not isinstance(group, ConsumerGroup):
            return
        if group.content != self.mirror.consumer_groups.get(
            G, ConsumerGroup(group_id=G, topics=group.topics).content
        ):
            raise Violation("the log has another state")
        holders: dict[Part, str] = {}
        for member_id, current in group.content.current.items():
            for assignment in (current.assigned, current.pending_revocation):
                for topic, ns in assignment.items():
                    for number in ns:
                        other = holders.setdefault((topic, number), member_id)
                        if other != member_id:
                            raise Violation(f"{number} is held by {member_id} and {other}")
                        if group.owners[topic][number] != member_id:
                            raise Violation(f"{number} has another owner in the index")
        if sum(map(len, group.owners.values())) != len(holders):
            raise Violation("the index has owners that hold nothing")
        self.check_restored(group)

    def check_restored(self, group: ConsumerGroup) -> None:
        is_busy = G in self.coordinator._consumer.busy
        if group.sessions.keys() != group.members.keys() and not is_busy:
            raise Violation("a member has no session, or the other way round")
        restored = ConsumerGroup(group_id=G, topics=Topics())
        for key, record in group.content.entries(G):
            assert not isinstance(record, UnreadableRecord)
            restored.apply(key, record)
        for name in COUNTED:
            if getattr(restored, name) != getattr(group, name):
                raise Violation(f"a restored group would have another value of {name}")

    def check_holders(self, client: Member) -> None:
        """Check that no partition that the client may commit can be committed by another."""
        self.moves += 1
        for other in self.members:
            if other is not client and other.may_commit & client.may_commit:
                raise Violation(f"{client.name} and {other.name} hold the same partition")

    def check_commit(self, caller: RequestingMember) -> None:
        self.commits += 1
        records = self.mirror.consumer_groups.get(G)
        if records is None:
            return
        current = records.current.get(caller.member_id)
        if current is None or current.member_epoch != caller.generation:
            raise Violation(f"a commit of {caller} was stored for {current}")

    def check_answer(self, answer: Any) -> None:
        """Check that the epoch that is told can't be lost."""
        epoch = getattr(answer, "member_epoch", None) or getattr(answer, "generation", 0)
        if answer.error is not ErrorCode.NONE or not epoch or epoch < 0:
            return
        if not isinstance(self.coordinator.groups.get(G), ConsumerGroup):
            return
        key = CurrentAssignmentKey(G, answer.member_id)
        kept = [each[1] for each in self.log[: self.replicated] if each[0] == key and each[1]]
        if epoch not in {each.member_epoch for each in kept}:
            raise Violation(f"epoch {epoch} of {answer.member_id} is told and may be lost")

    # --- what happens ---

    def happen(self) -> None:
        dice = self.random.random()
        member = self.random.choice(self.members)
        if dice < 0.45 and self.letters:
            self.letters.pop(self.random.randrange(len(self.letters)))()
        elif dice < 0.6:
            self.replicate()
        elif dice < 0.7:
            self.advance(self.random.choice([100, 500, 2_000, 4_000]))
        elif dice < 0.96:
            member.act()
        elif dice < 0.965:
            self.elect()
        elif dice < 0.97:
            self.change_topics()
        elif dice < 0.975:
            member.stop()
        elif dice < 0.98:
            if member.alive and member.epoch:
                member.leave(self.random.choice([-1, -2]))
        elif dice < 0.985:
            pause_ms = self.random.choice([1_000, 12_000, 50_000])
            member.paused_until_ms = self.now_ms + pause_ms
        elif not member.alive:
            self.start_again(member)

    def start_again(self, member: Member) -> None:
        """Start a client again, perhaps with the other protocol."""
        if self.migrates:
            member.__class__ = self.random.choice([Member, ClassicMember])
        member.start()

    def settle(self) -> None:
        """The faults stop: whoever is there shares everything out."""
        self.faulty = False
        for member in self.members:
            member.paused_until_ms = 0
        calm = 0
        for _ in range(1_500):
            while self.letters:
                self.letters.pop(0)()
            self.replicate()
            for member in self.members:
                member.act()
            self.advance(500)
            calm = calm + 1 if self.is_shared() else 0
            if calm == CALM:
                return
        told = {m.name: (m.epoch, sorted(m.held)) for m in self.members if m.alive}
        raise Violation(f"not shared out in the end: {told}")

    def is_shared(self) -> bool:
        alive = [member for member in self.members if member.alive]
        every = [
            (shape.topic_id, number)
            for shape in self.topics.values()
            for number in range(shape.partitions)
        ]
        held = sorted(part for member in alive for part in member.held)
        return not alive or held == sorted(every)
