"""A member that speaks ConsumerGroupHeartbeat.

It tells all of itself when it joins and after an answer was lost, else what has changed. It takes
the partitions that it is given at once, and gives up those that it is asked for after a moment; the
next heartbeat says so. Source: KIP-848.
"""

from simulation.checks.group_claims import Share
from simulation.checks.ledger import InvariantViolation
from simulation.groups.member import (
    GROUP,
    HANGS,
    HANGS_MS,
    INTERVAL_MS,
    LET_GO_MS,
    REBALANCE_MS,
    GroupParts,
    WorkloadMember,
    shares_of,
)
from simulation.groups.topics import LASTING, MATCHED, PASSING, PATTERN
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.consumer_group_heartbeat import (
    API,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    OwnedPartitions,
)

VERSION = 1
LEAVES = -1
LEAVES_FOR_A_MOMENT = -2
CHANGES_TOPICS = 0.03
WITH_PATTERN = 0.3
SUBSCRIPTIONS = (LASTING, LASTING, (*LASTING, PASSING[0]), ("ga",), ("gb", *PASSING))
SHORT_MS = (INTERVAL_MS // 2, INTERVAL_MS)
JOINS_ANEW = frozenset(
    {
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)


class SimulatedConsumerMember(WorkloadMember):
    protocol = "consumer"

    def __init__(self, parts: GroupParts, instance_id: str | None = None) -> None:
        super().__init__(parts, (), instance_id)
        self.member_id = parts.new_id()
        self._pattern: str | None = None
        self._choose_topics()
        self._is_full = True
        """True when the next heartbeat says everything."""
        self._owned_is_news = True
        self._leaves_with: int | None = None

    def run(self) -> None:
        self._beat()

    def leave(self, *, for_a_moment: bool = False) -> None:
        away = for_a_moment and self.instance_id is not None
        self._leaves_with = LEAVES_FOR_A_MOMENT if away else LEAVES

    def _choose_topics(self) -> None:
        if self.choose.random() < WITH_PATTERN:
            self.topics, self._pattern = MATCHED, PATTERN
        else:
            self.topics, self._pattern = self.choose.choice(SUBSCRIPTIONS), None

    # --- heartbeats ---

    def _next(self, within_ms: tuple[int, int] = SHORT_MS) -> None:
        if not self.parts.over and self.choose.random() < HANGS:
            self._note("hangs")
            within_ms = HANGS_MS
        self.later(self._beat, within_ms)

    def _beat(self) -> None:
        if self._leaves_with is not None:
            self._say_good_bye(self._leaves_with)
            return
        if self.epoch and not self.parts.over and self.choose.random() < CHANGES_TOPICS:
            self._choose_topics()
            self._is_full = True
        self.commit_some()
        self.is_settled = False
        joins, epoch = not self.epoch, self.epoch
        owned = (
            frozenset(self.claims.held) if joins or self._is_full or self._owned_is_news else None
        )
        request = self._request(owned)
        is_full, self._is_full = self._is_full or joins, False
        self._owned_is_news = False

        def on_answer(answer: ConsumerGroupHeartbeatResponse | None, sent_ms: int | None) -> None:
            if answer is None:
                self._is_full = True
                if joins and self.choose.random() < 0.5:
                    # As a process that is restarted meanwhile.
                    self.member_id = self.parts.new_id()
                    self.claims.late.clear()
                self.later(self._beat)
            elif answer.error_code:
                self._is_full = self._is_full or is_full
                self._refused(ErrorCode.of(answer.error_code))
            else:
                self._answered(epoch, answer, sent_ms)

        self.ask(API, VERSION, request, on_answer, named=owned)

    def _request(self, owned: frozenset[Share] | None) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
        )
        if owned is not None:
            request.topic_partitions = [
                OwnedPartitions(
                    topic_id=topic, partitions=[n for each, n in owned if each == topic]
                )
                for topic in sorted({topic for topic, _ in owned})
            ]
        if self._is_full or not self.epoch:
            request.rebalance_timeout_ms = REBALANCE_MS
            # An empty name ends a pattern; names beside a pattern would be subscribed to, too.
            request.subscribed_topic_regex = self._pattern or ("" if self.epoch else None)
            request.subscribed_topic_names = [] if self._pattern else list(self.topics)
        return request

    def _answered(
        self, epoch: int, answer: ConsumerGroupHeartbeatResponse, sent_ms: int | None
    ) -> None:
        given = None
        if answer.assignment is not None:
            parts = answer.assignment.topic_partitions
            given = {each.topic_id: frozenset(each.partitions) for each in parts}
        self.parts.log.check_answer(self.member_id, answer.member_epoch, given)
        if answer.member_epoch < epoch and not self.parts.is_void():
            raise InvariantViolation(
                "member epochs never go back",
                f"{self.name} is told {answer.member_epoch}, after {epoch}",
            )
        if not epoch:
            self.parts.joins += 1
            self._note(f"has joined as {self.member_id}, epoch {answer.member_epoch}")
        self.move_to(answer.member_epoch)
        self.extend(sent_ms)
        if given is None:
            self.is_settled = True
            self._next()
            return
        wanted = shares_of(given)
        held = frozenset(self.claims.held)
        self._note(f"epoch {self.epoch}: has {len(held)}, is to have {len(wanted)}")
        self.take(wanted)
        self._owned_is_news = wanted != held
        if held <= wanted:
            self._next(SHORT_MS if wanted == held else LET_GO_MS)
            self.is_settled = wanted == held
            return

        def let_go() -> None:
            self.let_go(held - wanted)
            self._beat()

        hangs = not self.parts.over and self.choose.random() < HANGS
        self.later(let_go, HANGS_MS if hangs else LET_GO_MS)

    def _refused(self, code: ErrorCode) -> None:
        self._note(f"with epoch {self.epoch} is refused: {code.name}")
        self.check_code(code, "heartbeat")
        if code is ErrorCode.FENCED_INSTANCE_ID:
            # Another process has its place.
            self._end()
            return
        if code in JOINS_ANEW:
            self.let_go()
            self.move_to(0)
        self._is_full = self._owned_is_news = True
        self.retry(self._beat)

    def _say_good_bye(self, epoch: int) -> None:
        """Leave, and be gone whatever the answer: it gives up its partitions before."""
        self.let_go()
        if not self.epoch:
            self._end()
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
        )

        def on_answer(answer: ConsumerGroupHeartbeatResponse | None, _: int | None) -> None:
            if answer is not None:
                code = ErrorCode.of(answer.error_code)
                self.check_code(code, "leave")
                if code is ErrorCode.NONE:
                    self.parts.log.check_left(self.member_id, epoch)
            self._end()

        self.ask(API, VERSION, request, on_answer)
