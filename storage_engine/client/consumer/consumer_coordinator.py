"""The part of a consumer that runs in the thread of its loop: it keeps the membership of the group,
and commits offsets.

    consumer -> events, commits -> [loop] MemberDriver -> requests -> coordinator of the group
        ^                             |
        +-- Revoked, Assigned, GroupFailed-+

The loop's lock guards the shared state. The consumer applies changes in its own thread, in order;
until it has released its partitions, the group gives them to nobody else. Source: KIP-62, KIP-848.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from storage_engine.client.consumer.classic_member import ClassicMember
from storage_engine.client.consumer.consumer_config import CONSUMER_PROTOCOL, ConsumerConfig
from storage_engine.client.consumer.consumer_member import ConsumerMember
from storage_engine.client.consumer.coordinator_calls import (
    Answer,
    CoordinatorCall,
    CoordinatorCalls,
    code_of,
)
from storage_engine.client.consumer.membership import (
    ASK_AGAIN,
    Assigned,
    CommitAnswered,
    Farewell,
    FindCoordinator,
    GroupFailed,
    MemberDriver,
    MemberEvent,
    MembershipTick,
    Outgoing,
    Polled,
    Released,
    Revoked,
    Step,
    Subscribed,
    Unsubscribed,
)
from storage_engine.client.consumer.offset_commits import OffsetCommits, PendingCommit
from storage_engine.client.consumer.subscription import Subscription
from storage_engine.client.groups.group_requests import NOBODY, GroupRequest, MemberIdentity
from storage_engine.client.loop import ClientLoop
from storage_engine.client.retry import pause_ms
from storage_engine.core.errors import (
    AuthenticationError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.blocking import Readable
from storage_engine.net.deadline import Deadline, monotonic_ms

_LONGEST_WAIT_MS = 1_000
_LEAVE_MS = 2_000
"""The time for a member's last request. Without one the session timeout tells the coordinator."""


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """A change: a commit with a callback is done."""

    callback: Callable[[HeadraceError | None], None]
    error: HeadraceError | None


Change = Revoked | Assigned | GroupFailed | OffsetsCommitted


class ConsumerCoordinator:
    """The state of a consumer with a `group.id` that the consumer and its loop share."""

    def __init__(self, config: ConsumerConfig) -> None:
        assert config.group_id is not None
        self._config = config
        self._cluster = config.cluster()
        self._calls = CoordinatorCalls(self._cluster, config.group_id)
        made = ConsumerMember if config.group_protocol == CONSUMER_PROTOCOL else ClassicMember
        self._member: MemberDriver = made(config, self._cluster)
        self._log_in_error: AuthenticationError | None = None
        self._wanted: Outgoing | None = None
        # The request that the member wants and that is not sent; and that which is.
        self._call: CoordinatorCall | None = None
        self._retry_at_ms = 0
        self._attempts = 0
        self._loop = ClientLoop("headrace-group", work=self, on_end=self._ended)
        # It guards all below; who waits is notified of changes and of finished commits.
        self._lock = self._loop.lock
        self._changed = self._loop.changed
        self._events: deque[MemberEvent] = deque()
        self._changes: deque[Change] = deque()
        self._known = NOBODY
        """The member as it was at the end of the last turn."""
        self._commits = OffsetCommits(
            config,
            self._calls,
            self._changed,
            on_refused=self._commit_refused,
            on_done=self._commit_done,
        )
        self._polled_ms = monotonic_ms()
        self._poll_timed_out = False
        self._has_left = False
        self._closing: Deadline | None = None
        self._loop.start()

    # What the consumer uses, from its thread.

    def subscribe(self, subscription: Subscription) -> None:
        self._send_event(Subscribed(now_ms=monotonic_ms(), subscription=subscription))

    def unsubscribe(self) -> None:
        """Leave the group; no change of the membership comes any more."""
        with self._lock:
            self._has_left = False
        self._send_event(Unsubscribed())
        with self._lock, self._changed.waiting() as waiting:
            while not self._has_left and not self._loop.has_ended:
                waiting.wait(None)

    def released(self, partitions: Collection[TopicPartition] | None) -> None:
        """The consumer reads nothing any more of what it was asked to let go; None: of anything."""
        with self._lock:
            self._commits.pin(self._known, partitions)
            self._add_event(Released())

    def identity(self, caller: MemberIdentity) -> MemberIdentity:
        """The identity with which a member that was `caller` commits now."""
        with self._lock:
            return caller.now(self._known)

    def next_change(self) -> Change | None:
        """The caller applies a change before it asks for the next one."""
        with self._lock, self._changed.waiting() as waiting:
            self._polled_ms = monotonic_ms()
            if self._poll_timed_out:
                # What it had may be another's: first it hears of that.
                self._add_event(Polled(now_ms=self._polled_ms))
            while self._poll_timed_out and not self._loop.has_ended:
                waiting.wait(None)
            if self._loop.is_of_parent:
                raise HeadraceError("the consumer was made before a fork; make one in each process")
            if self._loop.has_ended and self._closing is None:
                raise HeadraceError(
                    "the consumer's background thread has ended because of a bug; its traceback is "
                    "on stderr"
                )
            return self._changes.popleft() if self._changes else None

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        caller: MemberIdentity,
        callback: Callable[[HeadraceError | None], None] | None = None,
        timeout_ms: int | None = None,
    ) -> PendingCommit:
        """Begins to commit offsets, within `default.api.timeout.ms` unless a timeout is given;
        commits are sent one after the other."""
        deadline = Deadline.after(timeout_ms or self._config.default_api_timeout_ms)
        commit = PendingCommit(
            offsets=dict(offsets), caller=caller, deadline=deadline, callback=callback
        )
        with self._lock, self._changed.waiting() as waiting:
            while self._commits.is_full and not self._loop.has_ended:
                waiting.wait(None)
            if self._loop.has_ended:
                raise HeadraceError("the consumer is closed")
            self._commits.add(commit)
            self._loop.wake()
        return commit

    def wait_for(self, commit: PendingCommit) -> None:
        """Waits until the commit is stored, or raises its error."""
        with self._lock, self._changed.waiting() as waiting:
            while not commit.done and not self._loop.has_ended:
                waiting.wait(None)
        if commit.error is not None:
            raise commit.error
        if not commit.done:
            raise HeadraceError("the consumer is closed")

    def close(self, timeout_ms: int) -> None:
        """Leave the group, after the commits that are on their way."""
        deadline = Deadline.after(timeout_ms)
        with self._lock, self._changed.waiting() as waiting:
            while self._commits and not self._loop.has_ended and waiting.wait(deadline):
                pass
            self._closing = deadline
            self._add_event(Unsubscribed())
        self._loop.join()

    def _send_event(self, event: MemberEvent) -> None:
        with self._lock:
            self._add_event(event)

    def _add_event(self, event: MemberEvent) -> None:
        self._events.append(event)
        self._loop.wake()

    # The loop's thread.

    def turn(self) -> None:
        """Processes the answers that have arrived, and does what is due."""
        self._calls.receive()
        with self._lock:
            events, self._events = self._events, deque()
            polled_ms, closing = self._polled_ms, self._closing
        for event in events:
            self._step(event)
            if isinstance(event, Unsubscribed):
                self._mark_left()
        now_ms = monotonic_ms()
        self._step(Polled(now_ms=polled_ms))
        due_ms = self._member.due_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._step(MembershipTick(now_ms=now_ms))
        self._carry_out(self._member.look(now_ms))
        self._send(now_ms)
        self._commits.send(now_ms, self._member.identity)
        with self._lock:
            self._known = self._member.identity
            self._poll_timed_out = self._member.has_timed_out
            self._changed.notify_all()
            is_over = closing is not None and (not self._commits or closing.passed)
        if is_over:
            self._loop.stop()

    def due_in_ms(self, now_ms: int) -> int:
        if self._events:
            return 0
        due_ms = [self._member.due_ms(), self._commits.due_ms(), now_ms + _LONGEST_WAIT_MS]
        if self._wanted is not None:
            due_ms.append(self._retry_at_ms)
        return max(0, min(due for due in due_ms if due is not None) - now_ms)

    def sockets(self) -> list[Readable]:
        return self._calls.sockets()

    def _ended(self, _is_broken: bool) -> None:
        self._calls.close()
        self._cluster.close()

    def _step(self, event: MemberEvent) -> None:
        self._carry_out(self._member.step(event))

    def _carry_out(self, steps: Iterable[Step]) -> None:
        for step in steps:
            match step:
                case FindCoordinator():
                    self._calls.forget_coordinator()
                    self._retry_at_ms = monotonic_ms() + pause_ms(self._attempts)
                    self._attempts += 1
                case Farewell():
                    self._drop_call()
                    with self._lock:
                        # Before the others are told: a poll meanwhile hands nothing out.
                        self._poll_timed_out = self._member.has_timed_out
                    self._leave(step.request)
                case Revoked():
                    if step.partitions is None:
                        self._drop_call()
                    self._add_change(step)
                case GroupFailed():
                    self._drop_call()
                    self._add_change(GroupFailed(self._log_in_error or step.error))
                case Assigned():
                    self._add_change(step)
                case Outgoing():
                    self._drop_call()
                    self._wanted = step

    def _drop_call(self) -> None:
        self._wanted = None
        if self._call is not None:
            self._calls.drop(self._call)
            self._call = None

    def _add_change(self, change: Change) -> None:
        with self._lock:
            self._changes.append(change)

    def _leave(self, request: GroupRequest) -> None:
        with contextlib.suppress(KafkaError, DeadlineExceededError):
            self._calls.ask(request, _LEAVE_MS)

    def _mark_left(self) -> None:
        self._drop_call()
        with self._lock:
            left = [each for each in self._changes if isinstance(each, OffsetsCommitted)]
            self._changes = deque(left)
            self._has_left = True
            self._changed.notify_all()

    def _send(self, now_ms: int) -> None:
        wanted = self._wanted
        if wanted is None or now_ms < self._retry_at_ms:
            return
        self._wanted = None

        def on_answer(answer: Answer | None, error: HeadraceError | None) -> None:
            self._call = None
            if isinstance(error, AuthenticationError):
                self._log_in_error = error
            code = code_of(error) if answer is None else ErrorCode.of(answer.error_code)
            if code not in ASK_AGAIN:
                self._attempts = 0
            self._carry_out(wanted.answered(answer, code))

        try:
            self._call = self._calls.send(wanted.make(now_ms), wanted.wait_ms, on_answer)
        except (KafkaError, DeadlineExceededError) as error:
            on_answer(None, error)

    def _commit_refused(self, event: CommitAnswered) -> None:
        self._step(event)

    def _commit_done(self, commit: PendingCommit) -> None:
        if commit.callback is not None:
            self._changes.append(OffsetsCommitted(commit.callback, commit.error))


"""The member that commits for a consumer which chose its partitions itself."""
