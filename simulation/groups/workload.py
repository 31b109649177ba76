"""The group of one run: places that each have one member after the other, the topics that they
read, and the checks.

In half of the runs all speak the consumer protocol, in the others the members of the places go from
one protocol to the other and back, one by one, so that the group is converted under way. Once the
faults are over the members stay; then each partition has one of them within a bound.
"""

from collections.abc import Callable

from simulation.checks.copies import BatchNote
from simulation.checks.group_log import committed_bytes
from simulation.groups.classic_member import SimulatedClassicMember
from simulation.groups.consumer_member import SimulatedConsumerMember
from simulation.groups.member import GROUP_STATE, SESSION_MS, GroupParts, WorkloadMember
from simulation.groups.topics import GroupTopics
from simulation.shared import Profile, Run
from simulation.workload import Workload
from storage_engine.core.ids import TopicPartition

PLACES = 4
MIGRATING = 0.5
STATIC = 0.4
TURN_MS = (1500, 4000)
"""How long all places prefer one protocol."""
LIVES_MS = (300, 4000)
AWAY_MS = (10, 1500)
"""The time between two members of a place."""
COMPARE_MS = 200
BROKER_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "log.cleaner.backoff.ms": "400",
    "group.initial.rebalance.delay.ms": "100",
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.migration.policy": "bidirectional",
}


def settings_of(profile: Profile) -> dict[str, str]:
    """Return the settings of the brokers."""
    if profile.durable:
        return {**BROKER_SETTINGS, "flush.before.ack": "true"}
    return BROKER_SETTINGS


class Groups(Workload):
    """Topics, members and checks."""

    ends = "each partition of a subscribed topic has one member"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._choose = run.chooser("groups")
        self._topics = GroupTopics(run)
        self.parts = GroupParts(run, self._topics)
        self.migrates = self._choose.random() < MIGRATING
        self.prefers_consumer = not self.migrates or self._choose.random() < 0.5
        self._places = [Place(self, n) for n in range(PLACES)]
        self._compared = 0
        run.expect_topic(GROUP_STATE.topic, min_in_sync=1, compacted=True)
        run.checker.on_committed.append(self._on_committed)

    def create_topics(self) -> None:
        self._topics.create()

    def start(self) -> None:
        for place in self._places:
            place.start()
        self._topics.run()
        self._turn()
        self._compare()

    def finish(self) -> None:
        """Have members stay, and topics keep their partitions."""
        self._topics.over = self.parts.over = True

    def left(self) -> list[str]:
        """Return what is missing until each partition of the subscribed topics has one member."""
        if self.parts.is_void():
            return []
        members = [place.member for place in self._places if place.member is not None]
        found = [f"{each.name} is on its way" for each in members if not each.is_settled]
        if len(members) < PLACES:
            found.append(f"{PLACES - len(members)} places have no member")
        sizes = self._topics.sizes()
        wanted = {
            (topic_id, number): name
            for name, (topic_id, count) in sizes.items()
            if any(name in each.topics for each in members)
            for number in range(count)
        }
        claims = self.parts.claims
        for share, name in wanted.items():
            holders = claims.holders(share)
            if len(holders) != 1:
                found.append(f"{name}-{share[1]} is held by {holders}")
        found += claims.unknown(wanted.keys())
        if not self._compare_once():
            found.append("the coordinator has more to write")
        return found

    def counts(self) -> dict[str, int]:
        log = self.parts.log
        return {
            "joins": self.parts.joins,
            "partitions taken": self.parts.claims.taken,
            "commits of members": log.accepted,
            "conversions": log.conversions,
            "comparisons": self._compared,
        }

    def _turn(self) -> None:
        def turn() -> None:
            if not self.parts.over:
                self.prefers_consumer = not self.prefers_consumer
                self._turn()

        if self.migrates:
            self.run.cluster.loop.call_later(self._choose.randint(*TURN_MS), turn)

    def _compare(self) -> None:
        """Compare the coordinator with its log, again and again."""

        def compare() -> None:
            self._compare_once()
            self._compare()

        self.run.cluster.loop.call_later(COMPARE_MS, compare)

    def _compare_once(self) -> bool:
        record = self.run.checker.record(GROUP_STATE)
        found = self.parts.log.check_memory(self.run.cluster, record)
        self._compared += found
        return found

    def _on_committed(self, tp: TopicPartition, note: BatchNote, broker: int) -> None:
        if tp == GROUP_STATE and not note.is_transactional:
            before = self.parts.log.kind
            self.parts.log.on_batch(committed_bytes(self.run.cluster, tp, note, broker))
            if (now := self.parts.log.kind) is not before:
                self.run.trace.note(f"the group was {before.value}, and is {now.value}")


class Place:
    """One member after another."""

    def __init__(self, groups: Groups, number: int) -> None:
        self._groups = groups
        self._choose = groups.run.chooser("place", number)
        is_static = self._choose.random() < STATIC
        self._instance_id = f"instance {number}" if is_static else None
        self.member: WorkloadMember | None = None

    def start(self) -> None:
        self._later(self._begin, AWAY_MS)

    def _later(self, act: Callable[[], None], within_ms: tuple[int, int]) -> None:
        self._groups.run.cluster.loop.call_later(self._choose.randint(*within_ms), act)

    def _begin(self) -> None:
        kind = SimulatedConsumerMember if self._groups.prefers_consumer else SimulatedClassicMember
        member = self.member = kind(self._groups.parts, self._instance_id)
        member.run()
        lives_ms = self._choose.randint(*LIVES_MS)
        # Watched also when it ends by itself.
        self._watch(member, self._groups.run.cluster.loop.now_ms + lives_ms)

    def _watch(self, member: WorkloadMember, until_ms: int) -> None:
        def look() -> None:
            if member.has_ended:
                self.member = None
                self._later(self._begin, AWAY_MS)
                return
            if self._groups.run.cluster.loop.now_ms >= until_ms and not self._groups.parts.over:
                self._end(member)
            self._watch(member, until_ms)

        self._later(look, (50, 150))

    def _end(self, member: WorkloadMember) -> None:
        way = self._choose.random()
        if way < 0.3:
            member.crash()
        else:
            member.leave(for_a_moment=way < 0.7)
