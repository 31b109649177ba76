"""The requests for micro-batches of the exactly-once sink, from tasks and drivers to the
coordinator.

    task     join -> AlreadyCommitted: drop the rows, and report that
                  -> MicroBatchMember: write with BatchWriter(cluster, transaction=member)
    driver   commit(members of all tasks, drained) -> COMMITTED or ALREADY_COMMITTED, both success
             abort(members)                           best effort

After a lost or retriable answer the identical request goes to the sink's present coordinator, until
the deadline. Raised KafkaErrors are final. MEMBER_LOST and NOT_COMMITTED end the query, whose
restart replays the batch. INVALID_TXN_STATE of a member means that it was aborted; the task joins
again. RUN_REPLACED means that a newer run of the query writes to the sink. A named batch write is a
query of its own (`named_write`) with one batch.

Not for several threads at once. Source: R-SPARK2; docs/sink-protocol.md.
"""

import enum
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from storage_engine.client.asking import TRANSACTION, ask_coordinator
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.producer_requests import (
    ENLIST_VERSION,
    enlist_request,
    enlisted_codes,
    worst,
)
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.transactions.transaction_state import (
    ONCE_PREFIX,
    member_transactional_id,
    named_write,
    part_and_number,
)
from storage_engine.protocol.apis import abort_members, batch_heartbeat, commit_batch, join_batch
from storage_engine.protocol.apis.commit_batch import CommitBatchRequest, CommitBatchResponse
from storage_engine.protocol.apis.join_batch import JoinBatchRequest, JoinBatchResponse
from storage_engine.protocol.apis.micro_batch_fields import (
    UNKNOWN_COMMITTER,
    UNKNOWN_ROWS,
    BatchResponse,
    ClaimedBy,
    CommittedBy,
)
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages.add_partitions_to_txn import API as ADD_PARTITIONS
from storage_engine.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse

TIMEOUT_MS = 60 * 60 * 1000
"""`transaction.timeout.ms` of a sink: from the last request of any task of the micro-batch."""

MemberId = tuple[int, int]
"""(producer id, epoch), which a task reports to its driver."""

Origins = Mapping[TopicPartition, int]
"""The highest offset of each source partition, inclusive."""


def unnamed_write_query() -> str:
    """A new query id for a batch write without a name. The brokers forget what it has committed
    after `transactional.id.expiration.ms`."""
    return ONCE_PREFIX + str(uuid.uuid4())


def origins_note_query(owner: str, micro_batch: int) -> str:
    """The query id under which a micro-batch of the streaming query `owner` notes that it moves the
    origins of a sink. The brokers forget it like that of a batch write without a name."""
    return f"{ONCE_PREFIX}origins/{micro_batch}/{owner}"


def named_write_query(part: str, number: int) -> str:
    """The query id of a batch write with a number in a part of a sink. The brokers never forget
    it."""
    return named_write(part, number)


class CommitOutcome(enum.Enum):
    """How a commit succeeded."""

    COMMITTED = "committed by this request"
    ALREADY_COMMITTED = "committed before, by an earlier request or another driver"


class MicroBatches:
    """The batches of one query on one sink."""

    def __init__(
        self,
        cluster: Cluster,
        sink: str,
        query: str,
        *,
        owner: str = "",
        run: uuid.UUID | None = None,
        claim: ClaimedBy | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        """`owner`: the streaming query that a named batch write is a part of; `claim`: which write
        of it. `run`: the run of the streaming query, which a newer one replaces. `deadline_ms`: for
        each operation with its retries; None stands for the cluster's."""
        self._cluster = cluster
        self.sink = sink
        self.query = query
        self._owner = owner
        self._run = run
        self._claim = claim
        self._deadline_ms = deadline_ms
        self._name = member_transactional_id(sink)

    def join(
        self, batch: int, *, timeout_ms: int = TIMEOUT_MS
    ) -> "MicroBatchMember | AlreadyCommitted":
        """A transaction of its own for a task attempt, unless the batch is committed."""
        request = join_batch.JoinBatchRequest(
            sink=self.sink,
            query=self.query,
            batch=batch,
            timeout_ms=timeout_ms,
            nonce=uuid.uuid4(),
            owner=self._owner,
            run=self._run,
            claim=self._claim,
        )
        answer = self._ask(join_batch.API, request, _outcome)
        if answer.error_code == ErrorCode.ALREADY_COMMITTED:
            return AlreadyCommitted(dict(answer.origins), answer.committed)
        return MicroBatchMember(
            self, batch, answer.producer_id, answer.producer_epoch, dict(answer.origins)
        )

    def commit(
        self,
        batch: int,
        members: Collection[MemberId],
        *,
        drained: int = 0,
        origins: Origins | None = None,
        rows: int = UNKNOWN_ROWS,
        dropped: int = UNKNOWN_ROWS,
    ) -> "CommitResult":
        """Commits the batch as these members have written it, all of it or nothing.

        `drained`: how many tasks were answered AlreadyCommitted. `rows`, `dropped`: what the
        members have written, and what tasks had and did not write; brokers log both. KafkaError
        MEMBER_LOST, NOT_COMMITTED, RUN_REPLACED, BATCH_ID_TAKEN.
        """
        request = commit_batch.CommitBatchRequest(
            sink=self.sink,
            query=self.query,
            batch=batch,
            members=frozenset(members),
            drained=drained,
            origins=origins or {},
            owner=self._owner,
            run=self._run,
            claim=self._claim,
            rows=rows,
            dropped=dropped,
        )
        answer = self._ask(commit_batch.API, request, _outcome)
        if answer.error_code != ErrorCode.ALREADY_COMMITTED:
            return CommitResult(CommitOutcome.COMMITTED)
        is_own = answer.committed.winner in {producer_id for producer_id, _ in members}
        return CommitResult(CommitOutcome.ALREADY_COMMITTED, answer.committed, is_own)

    def claim_sink(self, batch: int) -> None:
        """Records under the query's own name that this micro-batch goes to this sink, before it is
        committed there. KafkaError BATCH_ID_TAKEN where it was begun for another one: it may be
        committed there."""
        note = MicroBatches(
            self._cluster,
            self.query,
            self.query,
            owner=self.sink,
            run=self._run,
            deadline_ms=self._deadline_ms,
        )
        note.commit(batch, [])

    def heartbeat(self, batch: int) -> None:
        """Keeps the open transactions of the batch from timing out. KafkaError INVALID_TXN_STATE
        when none is open."""
        request = batch_heartbeat.BatchHeartbeatRequest(
            sink=self.sink, query=self.query, batch=batch
        )
        self._ask(batch_heartbeat.API, request, _outcome)

    def abort(self, members: Collection[MemberId]) -> None:
        """Aborts the members that are still open, and gives the write of `claim` up: the next one
        under its name is its repetition."""
        request = abort_members.AbortMembersRequest(
            sink=self.sink,
            query=self.query,
            members=frozenset(members),
            write=None if self._claim is None else self._claim.write,
        )
        self._ask(abort_members.API, request, _outcome)

    def enlist(self, member: "MicroBatchMember", partitions: Iterable[TopicPartition]) -> None:
        """See `MicroBatchMember.enlist`."""
        request = enlist_request(
            member.transactional_id, member.producer_id, member.epoch, partitions
        )
        self._ask(ADD_PARTITIONS, request, _worst_partition, version=ENLIST_VERSION)

    def _ask(
        self,
        spec: ApiSpec[Req, Resp],
        request: Req,
        outcome: Callable[[Resp], tuple[ErrorCode, str | None]],
        *,
        version: int | None = None,
    ) -> Resp:
        """The coordinator's answer. KafkaError when that is a final error."""
        what = f"sink '{self.sink}'"

        def error_of(answer: Resp) -> KafkaError | None:
            code, text = outcome(answer)
            names_batch = isinstance(request, JoinBatchRequest | CommitBatchRequest)
            if code is ErrorCode.NONE or (code is ErrorCode.ALREADY_COMMITTED and names_batch):
                return None
            if code is ErrorCode.BATCH_ID_TAKEN:
                assert isinstance(request, JoinBatchRequest | CommitBatchRequest)
                assert isinstance(answer, JoinBatchResponse | CommitBatchResponse)
                if answer.committed.owner != self._owner:
                    text = self._taken(request.batch, answer.committed)
            message = f"{spec.name} of {what}, query '{self.query}': {text or code.meaning}"
            return KafkaError(message, code)

        _, answer = ask_coordinator(
            self._cluster,
            TRANSACTION,
            self._name,
            spec,
            request,
            error_of,
            what=what,
            version=version,
            deadline_ms=self._deadline_ms,
        )
        return answer

    def _taken(self, batch: int, by: CommittedBy) -> str:
        """The text of BATCH_ID_TAKEN: which other query has committed the number, or to which other
        sink a micro-batch goes; and the remedy."""
        named = part_and_number(self.query)
        if named is None:
            before = f"with sinkId '{by.owner}'" if by.owner else "without sinkId"
            return (
                f"micro-batch {batch} was begun {before}, and its rows may be there: restart the "
                f"query {before}, and change that when this micro-batch has ended"
            )
        who = f"the query {by.owner}" if by.owner else "a job that is part of no query"
        if not self._owner:
            remedy = "take another batchId, or write under another sinkId or sinkPart"
        elif by.owner:
            remedy = (
                "go on with the checkpoint of that query, or write under another sinkId or sinkPart"
            )
        else:
            remedy = "write under another sinkId or sinkPart"
        return f"batchId {named[1]} of part '{named[0]}', committed by {who}: {remedy}"


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The answer to a join whose batch is committed."""

    origins: Origins
    """The highest offset that the sink has of each source partition, inclusive."""
    by: CommittedBy = field(default=UNKNOWN_COMMITTER, compare=False)
    """The writer that committed the batch, as far as the coordinator still knows it."""


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome of a commit."""

    outcome: CommitOutcome
    by: CommittedBy = UNKNOWN_COMMITTER
    """The committer; set with ALREADY_COMMITTED."""
    is_own: bool = False
    """ALREADY_COMMITTED by this request itself, whose first answer was lost."""


class MicroBatchMember:
    """The transaction of one task attempt, in which a `BatchWriter` writes."""

    def __init__(
        self,
        batches: MicroBatches,
        batch: int,
        producer_id: int,
        epoch: int,
        origins: dict[TopicPartition, int],
    ) -> None:
        self._batches = batches
        self.batch = batch
        self.producer_id = producer_id
        self.epoch = epoch
        self.origins = origins
        """The committed origin offsets of each source partition, for `idempotentKey`."""
        self.transactional_id = member_transactional_id(batches.sink)

    @property
    def id(self) -> MemberId:
        return self.producer_id, self.epoch

    def enlist(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions to the transaction, before the first batch for them. KafkaError
        INVALID_TXN_STATE when the member was aborted."""
        self._batches.enlist(self, partitions)


def _outcome(
    answer: JoinBatchResponse | CommitBatchResponse | BatchResponse,
) -> tuple[ErrorCode, str | None]:
    return ErrorCode.of(answer.error_code), answer.error_message


def _worst_partition(answer: AddPartitionsToTxnResponse) -> tuple[ErrorCode, str | None]:
    """The worst code: a final error rather than a retriable one."""
    return worst(enlisted_codes(answer)), None
