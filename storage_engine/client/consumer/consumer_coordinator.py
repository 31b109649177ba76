"""The part of a consumer that runs in the thread of its loop: it keeps the membership of the group,
and commits offsets.

    consumer -> events, commits -> [loop] Membership -> requests -> coordinator of the group
        ^                             |
        +-- Release, Assigned, GroupFailed-+

The loop's lock guards the shared state. The consumer applies changes in its own thread, in order;
until it has released its partitions, the member does not join the next generation. Source: KIP-62.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from storage_engine.client.consumer import member_requests, membership
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_errors import GroupError
from storage_engine.client.consumer.coordinator_calls import (
    CoordinatorCall,
    CoordinatorCalls,
    code_of,
)
from storage_engine.client.consumer.member_requests import Answer
from storage_engine.client.consumer.membership import (
    ASK_AGAIN,
    NO_GENERATION,
    NO_MEMBER,
    Membership,
)
from storage_engine.client.consumer.range_assignment import assign_ranges
from storage_engine.client.consumer.subscription import Subscription, TopicCounts
from storage_engine.client.groups.group_requests import (
    CommitRefusedError,
    GroupRequest,
    MemberIdentity,
    commit_request,
    refused_commit,
)
from storage_engine.client.loop import ClientLoop
from storage_engine.client.retry import pause_ms
from storage_engine.core.errors import (
    AuthenticationError,
    CorruptRecordError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.groups.consumer_protocol import subscribed_topics
from storage_engine.core.ids import TopicPartition
from storage_engine.net.blocking import Readable
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.protocol.consumer_protocol import (
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from storage_engine.protocol.messages.join_group import JoinGroupResponse
from storage_engine.protocol.messages.offset_commit import OffsetCommitResponse
from storage_engine.protocol.messages.sync_group import SyncGroupResponse

COMMITS_MAX = 1_000  # on their way; who would begin another one waits for the first of them
_LONGEST_WAIT_MS = 1_000
_LEAVE_MS = 2_000
"""The time for a LeaveGroup request. Without one the session timeout tells the coordinator."""

_REFUSALS = membership.NO_LONGER_A_MEMBER | {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A change: these partitions are the consumer's, and it commits as `caller`."""

    partitions: tuple[TopicPartition, ...]
    caller: MemberIdentity


@dataclass(frozen=True, slots=True)
class GroupFailed:
    """A change: the group refuses the member."""

    error: HeadraceError


@dataclass(frozen=True, slots=True)
class OffsetsCommitted:
    """A change: a commit with a callback is done."""

    callback: Callable[[HeadraceError | None], None]
    error: HeadraceError | None


Change = membership.Release | Assigned | GroupFailed | OffsetsCommitted


@dataclass(slots=True, kw_only=True, eq=False)
class PendingCommit:
    offsets: Mapping[TopicPartition, int]
    caller: MemberIdentity
    deadline: Deadline
    done: bool = False
    error: HeadraceError | None = None
    callback: Callable[[HeadraceError | None], None] | None = None
    attempts: int = field(default=0, repr=False)


class ConsumerCoordinator:
    """The state of a consumer with a `group.id` that the consumer and its loop share."""

    def __init__(self, config: ConsumerConfig) -> None:
        assert config.group_id is not None
        self._config = config
        self._cluster = config.cluster()
        self._calls = CoordinatorCalls(self._cluster, config.group_id)
        self._topics = TopicCounts(self._cluster, max_age_ms=config.metadata_max_age_ms)
        self._membership = Membership(
            heartbeat_interval_ms=config.heartbeat_interval_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
            is_static=config.group_instance_id is not None,
        )
        self._log_in_error: AuthenticationError | None = None
        self._wanted: membership.Wanted | None = None
        # The request that the membership wants and that is not sent; and that which is.
        self._call: CoordinatorCall | None = None
        self._joined: JoinGroupResponse
        self._retry_at_ms = 0
        self._attempts = 0
        self._commit_call: CoordinatorCall | None = None
        self._commit_at_ms = 0
        self._loop = ClientLoop("headrace-group", work=self, on_end=self._ended)
        # It guards all below; who waits is notified of changes and of finished commits.
        self._lock = self._loop.lock
        self._changed = self._loop.changed
        self._events: deque[membership.Event] = deque()
        self._subscription = Subscription()
        self._changes: deque[Change] = deque()
        self._commits: deque[PendingCommit] = deque()
        self._polled_ms = monotonic_ms()
        self._poll_timed_out = False
        self._has_left = False
        self._closing: Deadline | None = None
        self._loop.start()

    # What the consumer uses, from its thread.

    def subscribe(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscription = subscription
        self._send_event(membership.Subscribed(now_ms=monotonic_ms()))

    def unsubscribe(self) -> None:
        """Leave the group; no change of the membership comes any more."""
        with self._lock:
            self._has_left = False
        self._send_event(membership.Unsubscribed())
        with self._lock, self._changed.waiting() as waiting:
            while not self._has_left and not self._loop.has_ended:
                waiting.wait(None)

    def released(self) -> None:
        """The consumer reads nothing any more of what it had."""
        self._send_event(membership.Released())

    def next_change(self) -> Change | None:
        """The caller applies a change before it asks for the next one."""
        with self._lock, self._changed.waiting() as waiting:
            self._polled_ms = monotonic_ms()
            if self._poll_timed_out:
                # What it had may be another's: first it hears of that.
                self._add_event(membership.Polled(now_ms=self._polled_ms))
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
            while len(self._commits) >= COMMITS_MAX and not self._loop.has_ended:
                waiting.wait(None)
            if self._loop.has_ended:
                raise HeadraceError("the consumer is closed")
            self._commits.append(commit)
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
            self._add_event(membership.Unsubscribed())
        self._loop.join()

    def _send_event(self, event: membership.Event) -> None:
        with self._lock:
            self._add_event(event)

    def _add_event(self, event: membership.Event) -> None:
        self._events.append(event)
        self._loop.wake()

    def turn(self) -> None:
        """In the loop's thread: processes the answers that have arrived, and does what is due."""
        self._calls.receive()
        with self._lock:
            events, self._events = self._events, deque()
            polled_ms, closing = self._polled_ms, self._closing
        for event in events:
            self._step(event)
            if isinstance(event, membership.Unsubscribed):
                self._mark_left()
        now_ms = monotonic_ms()
        self._step(membership.Polled(now_ms=polled_ms))
        due_ms = self._membership.due_ms()
        if due_ms is not None and due_ms <= now_ms:
            self._step(membership.MembershipTick(now_ms=now_ms))
        self._check_topics(now_ms)
        self._send(now_ms)
        self._send_commit(now_ms)
        with self._lock:
            self._poll_timed_out = self._has_timed_out
            self._changed.notify_all()
            is_over = closing is not None and (not self._commits or closing.passed)
        if is_over:
            self._loop.stop()

    def due_in_ms(self, now_ms: int) -> int:
        if self._events:
            return 0
        due_ms = [self._membership.due_ms(), now_ms + _LONGEST_WAIT_MS]
        if self._wanted is not None:
            due_ms.append(self._retry_at_ms)
        if self._commits and self._commit_call is None:
            due_ms.append(self._commit_at_ms)
        return max(0, min(due for due in due_ms if due is not None) - now_ms)

    def sockets(self) -> list[Readable]:
        return self._calls.sockets()

    def _ended(self, _is_broken: bool) -> None:
        self._calls.close()
        self._cluster.close()

    def _step(self, event: membership.Event) -> None:
        for effect in self._membership.step(event):
            match effect:
                case membership.FindCoordinator():
                    self._calls.forget_coordinator()
                    self._retry_at_ms = monotonic_ms() + pause_ms(self._attempts)
                    self._attempts += 1
                case membership.SendLeave():
                    self._drop_call()
                    with self._lock:
                        # Before the others are told: a poll meanwhile hands nothing out.
                        self._poll_timed_out = self._has_timed_out
                    self._leave(effect.member_id)
                case membership.Take():
                    self._take(effect.assignment)
                case membership.Release():
                    self._drop_call()
                    self._add_change(effect)
                case membership.Fail():
                    self._fail(effect.error)
                case _:
                    self._drop_call()
                    self._wanted = effect

    def _drop_call(self) -> None:
        self._wanted = None
        if self._call is not None:
            self._calls.drop(self._call)
            self._call = None

    def _add_change(self, change: Change) -> None:
        with self._lock:
            self._changes.append(change)

    def _fail(self, code: ErrorCode) -> None:
        self._drop_call()
        group = self._config.group_id
        error = self._log_in_error or GroupError(f"group '{group}': {code.meaning}", code)
        self._add_change(GroupFailed(error))

    def _leave(self, member_id: str) -> None:
        request = member_requests.leave(self._config, member_id)
        with contextlib.suppress(KafkaError, DeadlineExceededError):
            self._calls.ask(request, _LEAVE_MS)

    def _mark_left(self) -> None:
        self._drop_call()
        with self._lock:
            left = [each for each in self._changes if isinstance(each, OffsetsCommitted)]
            self._changes = deque(left)
            self._has_left = True
            self._changed.notify_all()

    def _take(self, assignment: bytes) -> None:
        try:
            partitions = decode_assignment(assignment)
        except CorruptRecordError as error:
            self._add_change(GroupFailed(error))
            return
        self._add_change(Assigned(partitions=partitions, caller=self._caller()))

    @property
    def _has_timed_out(self) -> bool:
        return self._membership.stage is membership.Stage.POLL_TIMED_OUT

    def _caller(self) -> MemberIdentity:
        known = self._membership
        return MemberIdentity(member_id=known.member_id, generation=known.generation)

    def _check_topics(self, now_ms: int) -> None:
        if self._membership.stage is not membership.Stage.MEMBER:
            return
        # When nobody tells now, it is asked again at the next time.
        with contextlib.suppress(KafkaError, DeadlineExceededError):
            if self._topics.changed(now_ms):
                self._step(membership.TopicsChanged())

    # Requests of the member.

    def _send(self, now_ms: int) -> None:
        wanted = self._wanted
        if wanted is None or now_ms < self._retry_at_ms:
            return
        self._wanted = None
        wait_ms = self._config.max_poll_interval_ms + self._config.request_timeout_ms
        if isinstance(wanted, membership.SendHeartbeat):
            # A coordinator that hangs is noticed while the session lasts.
            wait_ms = min(self._config.request_timeout_ms, self._config.session_timeout_ms // 2)

        def on_answer(answer: Answer | None, error: HeadraceError | None) -> None:
            self._call = None
            if isinstance(error, AuthenticationError):
                self._log_in_error = error
            code = code_of(error) if answer is None else ErrorCode.of(answer.error_code)
            if code not in ASK_AGAIN:
                self._attempts = 0
            self._step(self._answer_to(wanted, answer, code))

        try:
            request = self._request(wanted, now_ms)
            self._call = self._calls.send(request, wait_ms, on_answer)
        except (KafkaError, DeadlineExceededError) as error:
            on_answer(None, error)

    def _request(self, wanted: membership.Wanted, now_ms: int) -> GroupRequest:
        if isinstance(wanted, membership.SendJoin):
            with self._lock:
                subscription = self._subscription
            topics = self._topics.subscribe(subscription, now_ms)
            return member_requests.join(self._config, wanted.member_id, encode_subscription(topics))
        caller = MemberIdentity(member_id=wanted.member_id, generation=wanted.generation)
        if isinstance(wanted, membership.SendSync):
            return member_requests.sync(self._config, caller, self._assignments(now_ms))
        return member_requests.heartbeat(self._config, caller)

    def _assignments(self, now_ms: int) -> dict[str, bytes]:
        """The assignments of all members, when this member leads the group."""
        joined = self._joined
        if joined.leader != joined.member_id:
            return {}
        subscriptions = {
            each.member_id: subscribed_topics(each.metadata) or frozenset()
            for each in joined.members
        }
        every = frozenset(topic for topics in subscriptions.values() for topic in topics)
        counts = self._topics.watch(every, now_ms)
        return {
            member: encode_assignment(partitions)
            for member, partitions in assign_ranges(subscriptions, counts).items()
        }

    def _answer_to(
        self, wanted: membership.Wanted, answer: Answer | None, code: ErrorCode
    ) -> membership.Event:
        now_ms = monotonic_ms()
        if isinstance(wanted, membership.SendJoin):
            if not isinstance(answer, JoinGroupResponse):
                return membership.JoinAnswered(error=code)
            self._joined = answer
            return membership.JoinAnswered(
                error=code, member_id=answer.member_id, generation=answer.generation_id
            )
        if isinstance(wanted, membership.SendSync):
            part = bytes(answer.assignment) if isinstance(answer, SyncGroupResponse) else b""
            return membership.SyncAnswered(error=code, now_ms=now_ms, assignment=part)
        return membership.HeartbeatAnswered(error=code, now_ms=now_ms)

    # Commits, one after the other.

    def _send_commit(self, now_ms: int) -> None:
        with self._lock:
            commit = self._commits[0] if self._commits else None
        if commit is None or self._commit_call is not None or now_ms < self._commit_at_ms:
            return

        def on_answer(answer: OffsetCommitResponse | None, error: HeadraceError | None) -> None:
            self._commit_call = None
            self._commit_answered(commit, answer, error)

        request = commit_request(
            self._config.group_id or "",
            commit.caller,
            commit.offsets,
            instance_id=self._config.group_instance_id,
        )
        timeout_ms = max(1, min(commit.deadline.left_ms, self._config.request_timeout_ms))
        try:
            self._commit_call = self._calls.send(request, timeout_ms, on_answer)
        except (KafkaError, DeadlineExceededError) as error:
            on_answer(None, error)

    def _commit_answered(
        self,
        commit: PendingCommit,
        answer: OffsetCommitResponse | None,
        error: HeadraceError | None,
    ) -> None:
        refused = None if answer is None else refused_commit(answer)
        if error is None and refused is None:
            self._finish(commit, None)
            return
        if refused is not None:
            error = self._refusal(*refused)
            if refused[1] in _REFUSALS:
                generation = commit.caller.generation
                self._step(membership.CommitAnswered(error=refused[1], generation=generation))
        assert error is not None
        code = code_of(error)
        if code not in ASK_AGAIN:
            self._finish(commit, error)
        elif commit.deadline.passed:
            timeout_ms = commit.deadline.timeout_ms
            self._finish(commit, DeadlineExceededError(f"{error} (tried for {timeout_ms} ms)"))
        else:
            self._calls.forget_coordinator()
            self._commit_at_ms = monotonic_ms() + pause_ms(commit.attempts)
            commit.attempts += 1

    def _refusal(self, tp: TopicPartition, code: ErrorCode) -> KafkaError:
        group = self._config.group_id
        if code in _REFUSALS:
            return CommitRefusedError(
                f"the commit of {tp} was refused, because this consumer has lost its membership of "
                f"group '{group}' ({code.meaning}): poll again to rejoin, and continue with the "
                "partitions that it is assigned then",
                code,
            )
        return KafkaError(f"offsets of group '{group}', {tp}: {code.meaning}", code)

    def _finish(self, commit: PendingCommit, error: HeadraceError | None) -> None:
        with self._lock:
            self._commits.popleft()
            commit.error, commit.done = error, True
            self._commit_at_ms = 0
            if commit.callback is not None:
                self._changes.append(OffsetsCommitted(commit.callback, error))
            self._changed.notify_all()


NOBODY = MemberIdentity(member_id=NO_MEMBER, generation=NO_GENERATION)
"""The member that commits for a consumer which chose its partitions itself."""
