"""The common part of members of both protocols: the way to the coordinator, the claims on
partitions, commits, and the ends that a member takes.

A member has one request of the group under way at a time, besides commits. An answer may be lost on
its way, as the network loses it.
"""

from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from simulation.checks.group_claims import GroupClaims, LateRequest, MemberClaims, Share
from simulation.checks.group_log import CommitName, GroupLog
from simulation.checks.ledger import InvariantViolation
from simulation.groups.topics import GroupTopics
from simulation.shared import Run
from simulation.workload import WorkloadClient
from storage_engine.core.errors import ErrorCode
from storage_engine.core.features import GROUP_VERSION
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages import find_coordinator, offset_commit

GROUP = "members"
GROUP_STATE = TopicPartition(GROUP_OFFSETS_TOPIC, 0)
"""The only partition of that topic."""
SESSION_MS = 3000
REBALANCE_MS = 4000
"""More than a session: a member is fenced for its session first, unless it lets its partitions go
too late."""
INTERVAL_MS = 300
RETRY_MS = (20, 250)
FOUND_MS = (1, 5)
LET_GO_MS = (0, 300)
"""How long a member takes to give up a partition that it is asked for."""
HANGS_MS = (SESSION_MS // 2, 2 * SESSION_MS)
LOSES_ANSWER = 0.03
HANGS = 0.02
COMMITS = 0.3
STALE_COMMITS = 0.1
"""The share of commits with the epoch before the present one, as of a request that was late."""
RETRIED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
NEVER = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    }
)
"""Errors that no member here has earned."""


class GroupParts:
    """The state that all members of one run share."""

    def __init__(self, run: Run, topics: GroupTopics) -> None:
        self.run = run
        self.topics = topics
        self.choose = run.chooser("members")
        self.over = False
        """True when members neither leave nor hang any more."""
        self._state = run.checker.record
        self.claims = GroupClaims(lambda: run.cluster.loop.now_ms, self.is_void)
        self.log = GroupLog(GROUP, self.is_void, topics.lasting)
        self._numbers = 0
        self.joins = 0
        self.commits = 0

    def is_void(self) -> bool:
        return self._state(GROUP_STATE).unclean

    def number(self) -> int:
        """Return a number that was not returned before."""
        self._numbers += 1
        return self._numbers

    def new_id(self) -> str:
        """Return a member id, as clients choose theirs."""
        return str(UUID(int=self.choose.getrandbits(128), version=4))

    def later(self, act: Callable[[], None], within_ms: tuple[int, int] = RETRY_MS) -> None:
        """Call `act` after a random time."""
        self.run.cluster.loop.call_later(self.choose.randint(*within_ms), act)


class WorkloadMember(WorkloadClient):
    """A member of the group from its start to its end. `run` starts it."""

    protocol = ""

    def __init__(self, parts: GroupParts, topics: tuple[str, ...], instance_id: str | None) -> None:
        super().__init__(parts.run, parts.choose, f"{self.protocol} member {parts.number()}")
        self.parts = parts
        self.topics = topics
        """The topics that it subscribes to; those that a pattern matches, with a pattern."""
        self.instance_id = instance_id
        self.claims: MemberClaims = parts.claims.member(self.name)
        self.member_id = ""
        self.epoch = 0
        """Its member epoch, or its generation."""
        self._epoch_before = 0
        self._broker: int | None = None
        self.has_ended = False
        self.is_settled = False
        """True when it has nothing to do but to send heartbeats."""
        self._positions: dict[TopicPartition, int] = {}

    def run(self) -> None:
        raise NotImplementedError

    def leave(self, *, for_a_moment: bool = False) -> None:
        """Tell the coordinator, once, and end."""
        raise NotImplementedError

    def crash(self) -> None:
        """End without a word."""
        self._end()

    def _end(self) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.parts.claims.forget(self.claims)
            self._note(f"ends, as {self.member_id}")

    def _note(self, text: str) -> None:
        self.parts.run.trace.note(f"{self.name} {text}")

    # --- requests ---

    def ask(
        self,
        spec: ApiSpec[Req, Resp],
        version: int,
        request: Req,
        then: Callable[[Resp | None, int | None], None],
        *,
        named: frozenset[Share] | None = None,
    ) -> None:
        """Send a request once. `then` gets the answer, None when it is lost, and the time at which
        it was sent, None when its coordinator has been replaced since. `named`: the partitions that
        the request says are all of the member's; None: it does not say."""
        broker = self._broker
        if broker is None or not self._listens(broker):
            self._broker = None
            self._find(lambda: self.ask(spec, version, request, then, named=named))
            return
        sent_ms, epoch = self.cluster.loop.now_ms, self.epoch_of(broker, GROUP_STATE)
        host, life = self.cluster[broker], self.cluster[broker].life
        is_lost = not self.parts.over and self.choose.random() < LOSES_ANSWER

        def on_reply(answer: Resp | TransportError) -> None:
            if self.has_ended:
                return
            if isinstance(answer, TransportError):
                self._broker = None
                if named is not None:
                    late = LateRequest(named, lambda: host.life == life and host.up)
                    self.claims.late.append(late)
                then(None, None)
            elif is_lost:
                then(None, None)
            else:
                then(answer, sent_ms if self._has_led(broker, epoch) else None)

        self.request(broker, spec, version, request, on_reply)

    def retry(self, act: Callable[[], None]) -> None:
        """Look for the coordinator, and act again after a moment."""
        self._broker = None
        self.later(act)

    def later(self, act: Callable[[], None], within_ms: tuple[int, int] = RETRY_MS) -> None:
        self.parts.later(lambda: None if self.has_ended else act(), within_ms)

    def _listens(self, broker: int) -> bool:
        """Return False for a broker that has not read the levels of features: it does not listen
        yet outside of the simulation."""
        host = self.cluster[broker]
        return host.serving and host.parts.cluster.features.level(GROUP_VERSION) > 0

    def _has_led(self, broker: int, epoch: int) -> bool:
        """Return True when the broker led under that epoch, and still does."""
        state = self.checker.record(GROUP_STATE).state
        return (
            epoch >= 0
            and self.epoch_of(broker, GROUP_STATE) == epoch
            and state is not None
            and (state.leader, state.leader_epoch) == (broker, epoch)
        )

    def _find(self, then: Callable[[], None]) -> None:
        wanted = find_coordinator.FindCoordinatorRequest(key=GROUP, key_type=0)

        def on_found(answer: find_coordinator.FindCoordinatorResponse | TransportError) -> None:
            if self.has_ended:
                return
            if isinstance(answer, TransportError) or answer.error_code:
                self.later(lambda: self._find(then))
            else:
                self._broker = answer.node_id
                self.later(then, FOUND_MS)

        self.request(
            self.choose.choice(self.cluster.brokers).id, find_coordinator.API, 3, wanted, on_found
        )

    def check_code(self, code: ErrorCode, what: str) -> None:
        if code in NEVER and not self.parts.is_void():
            raise InvariantViolation(
                "a member gets no error that it has not earned", f"{self.name}: {what}: {code.name}"
            )

    # --- partitions and epochs ---

    def extend(self, sent_ms: int | None) -> None:
        """Begin the session anew: the present coordinator has answered what was sent then."""
        if sent_ms is not None:
            self.claims.safe_until_ms = max(self.claims.safe_until_ms, sent_ms + SESSION_MS)

    def move_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self._epoch_before, self.epoch = self.epoch, epoch

    def take(self, shares: Iterable[Share]) -> None:
        self.parts.claims.take(self.claims, shares)

    def let_go(self, shares: Iterable[Share] | None = None) -> None:
        """Give partitions up, all with None."""
        gone = set(self.claims.held if shares is None else shares)
        self.claims.held -= gone
        for topic_id, number in gone:
            name = self.parts.topics.lasting(topic_id)
            if name is not None:
                self._positions.pop(TopicPartition(name, number), None)

    # --- commits ---

    def commit_some(self) -> None:
        """Commit offsets of partitions that it holds, sometimes with an epoch that is over."""
        names = self.parts.topics.lasting
        held = [
            TopicPartition(name, number)
            for topic_id, number in sorted(self.claims.held)
            if (name := names(topic_id)) is not None
        ]
        if not held or self.choose.random() >= COMMITS:
            return
        is_stale = self._epoch_before > 0 and self.choose.random() < STALE_COMMITS
        epoch = self._epoch_before if is_stale else self.epoch
        self._commit(
            self.choose.choice(held), CommitName(self.member_id, epoch, self.parts.number())
        )

    def _commit(self, tp: TopicPartition, name: CommitName) -> None:
        # A consumer reads on where the group was when it got the partition.
        position = self._positions.get(tp) or self.parts.log.offset(tp)
        self._positions[tp] = position = position + self.choose.randint(1, 9)
        of_topic = offset_commit.OffsetCommitRequest.OffsetCommitRequestTopic
        row = of_topic.OffsetCommitRequestPartition(
            partition_index=tp.partition, committed_offset=position, committed_metadata=str(name)
        )
        request = offset_commit.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=name.epoch,
            member_id=name.member_id,
            group_instance_id=self.instance_id,
            topics=[of_topic(name=tp.topic, partitions=[row])],
        )

        def on_answer(answer: offset_commit.OffsetCommitResponse | None, _: int | None) -> None:
            if answer is None:
                return
            code = ErrorCode.of(answer.topics[0].partitions[0].error_code)
            self.check_code(code, "commit")
            if code is ErrorCode.NONE:
                self.parts.commits += 1
                self.parts.log.check_committed(name.number)

        if self._broker is not None:
            self.ask(offset_commit.API, 9, request, on_answer)


def shares_of(assignment: Mapping[UUID, Iterable[int]]) -> frozenset[Share]:
    return frozenset((topic, number) for topic in assignment for number in assignment[topic])
