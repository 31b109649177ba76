"""The commits of a consumer, sent one after the other in the thread of its loop.

A commit is sent with the member's present epoch, as long as the member has not let go of its
partitions since it was made: then it keeps the epoch of that time, with which the coordinator
refuses it once another may own them. Source: the OffsetCommit API, KIP-848.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from storage_engine.client.changed import Changed
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.coordinator_calls import (
    CoordinatorCall,
    CoordinatorCalls,
    code_of,
)
from storage_engine.client.consumer.membership import ASK_AGAIN, NO_LONGER_A_MEMBER, CommitAnswered
from storage_engine.client.groups.group_requests import (
    CommitRefusedError,
    MemberIdentity,
    commit_request,
    refused_commit,
)
from storage_engine.client.retry import pause_ms
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, monotonic_ms
from storage_engine.protocol.messages.offset_commit import OffsetCommitResponse

COMMITS_MAX = 1_000  # on their way; who would begin another one waits for the first of them

_REFUSALS = NO_LONGER_A_MEMBER | {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
}

OnDone = Callable[[HeadraceError | None], None]


@dataclass(slots=True, kw_only=True, eq=False)
class PendingCommit:
    offsets: Mapping[TopicPartition, int]
    caller: MemberIdentity
    deadline: Deadline
    done: bool = False
    error: HeadraceError | None = None
    callback: OnDone | None = None
    attempts: int = field(default=0, repr=False)


class OffsetCommits:
    """The commits on their way. What is public is called with the loop's lock held, but for `send`,
    which takes it."""

    def __init__(
        self,
        config: ConsumerConfig,
        calls: CoordinatorCalls,
        changed: Changed,
        *,
        on_refused: Callable[[CommitAnswered], None],
        on_done: Callable[[PendingCommit], None],
    ) -> None:
        """`on_refused` hears of errors that concern the membership; `on_done`, with the lock held,
        of each commit that has ended."""
        self._config = config
        self._calls = calls
        self._changed = changed
        self._on_refused = on_refused
        self._on_done = on_done
        self._queue: deque[PendingCommit] = deque()
        self._call: CoordinatorCall | None = None
        self._at_ms = 0
        self._known = MemberIdentity(member_id="", generation=-1)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        return len(self._queue) >= COMMITS_MAX

    def add(self, commit: PendingCommit) -> None:
        self._queue.append(commit)

    def pin(self, known: MemberIdentity, partitions: Collection[TopicPartition] | None) -> None:
        """The member, which is `known` so far, lets go of partitions (None: of all): what is on its
        way for them must not be stored once another has got them."""
        for commit in self._queue:
            if partitions is None or not commit.offsets.keys().isdisjoint(partitions):
                commit.caller = replace(commit.caller.now(known), joins=0)

    def due_ms(self) -> int | None:
        """The time of the next send; None while there is nothing to send."""
        return self._at_ms if self._queue and self._call is None else None

    # --- in the loop's thread ---

    def send(self, now_ms: int, known: MemberIdentity) -> None:
        """Sends the first commit when it is time to. `known`: the member's present identity."""
        self._known = known
        with self._changed.lock:
            commit = self._queue[0] if self._queue else None
        if commit is None or self._call is not None or now_ms < self._at_ms:
            return
        caller = commit.caller.now(known)

        def on_answer(answer: OffsetCommitResponse | None, error: HeadraceError | None) -> None:
            self._call = None
            self._answered(commit, caller, answer, error)

        request = commit_request(
            self._config.group_id or "",
            caller,
            commit.offsets,
            instance_id=self._config.group_instance_id,
        )
        timeout_ms = max(1, min(commit.deadline.left_ms, self._config.request_timeout_ms))
        try:
            self._call = self._calls.send(request, timeout_ms, on_answer)
        except (KafkaError, DeadlineExceededError) as error:
            on_answer(None, error)

    def _answered(
        self,
        commit: PendingCommit,
        caller: MemberIdentity,
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
                self._on_refused(CommitAnswered(error=refused[1], generation=caller.generation))
        assert error is not None
        code = code_of(error)
        is_behind = code is ErrorCode.STALE_MEMBER_EPOCH and self._follows(commit)
        if code not in ASK_AGAIN and not is_behind:
            self._finish(commit, error)
        elif commit.deadline.passed:
            timeout_ms = commit.deadline.timeout_ms
            self._finish(commit, DeadlineExceededError(f"{error} (tried for {timeout_ms} ms)"))
        else:
            if not is_behind:
                self._calls.forget_coordinator()
            self._at_ms = monotonic_ms() + pause_ms(commit.attempts)
            commit.attempts += 1

    def _follows(self, commit: PendingCommit) -> bool:
        """Whether the member still has all that it had when the commit was made: the coordinator
        knows an epoch that the next heartbeat's answer tells."""
        return 0 < commit.caller.joins == self._known.joins

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
        with self._changed.lock:
            self._queue.popleft()
            commit.error, commit.done = error, True
            self._at_ms = 0
            self._on_done(commit)
            self._changed.notify_all()
