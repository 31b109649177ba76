"""DescribeTransactions and ListTransactions: the transactions of the coordinators on this broker.

A coordinator that is still loading answers nothing. The members of sinks have no transactional id
of their own, and are not listed. Source: KIP-664.

DescribeProducers: the idempotent producers that a replica of a partition remembers. They show
which transaction hangs. Source: KIP-664.

DescribeSinks: the state of exactly-once sinks in the coordinators on this broker.

Only state in memory is described: nothing is read, and nothing is changed. Rows and members have
limits, so one request has a bounded cost. Source: R-CON6.
"""

from collections.abc import Generator
from itertools import islice

from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.replicas.replica_manager import ReplicaManager
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.retained.producer_state import ProducerEntry
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.transaction_state import (
    NO_BATCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    LedgerKey,
    LedgerRecord,
    MemberRecord,
    TransactionRecord,
    TransactionState,
    names_a_sink,
)
from storage_engine.core.transactions.transactions import TransactionCoordinator
from storage_engine.protocol.apis.describe_sinks import (
    MOST_MEMBERS,
    MOST_NAMES,
    MOST_PARTITIONS,
    MOST_ROWS,
    NEVER,
    UNKNOWN_IDLE,
    DescribeSinksRequest,
    DescribeSinksResponse,
    OpenMember,
    SinkQuery,
)
from storage_engine.protocol.apis.micro_batch_fields import CommittedBy
from storage_engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from storage_engine.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from storage_engine.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

STATE_NAMES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
}

_Described = DescribeTransactionsResponse.TransactionState
_Listed = ListTransactionsResponse.TransactionState


def describe_transactions(
    coordinators: TransactionCoordinators,
    call: ApiCall[DescribeTransactionsResponse],
    request: DescribeTransactionsRequest,
) -> Steps:
    rows = []
    # Each once: a transaction may have many partitions.
    for name in dict.fromkeys(request.transactional_ids):
        rows.append(_described(coordinators, name))
        yield None
    call.respond(DescribeTransactionsResponse(transaction_states=rows))


def _described(coordinators: TransactionCoordinators, name: str) -> _Described:
    found = coordinators.coordinator_of(name)
    record: TransactionRecord | None = None
    code = ErrorCode.NONE
    if isinstance(found, ErrorCode):
        code = found
    else:
        assert isinstance(found, TransactionCoordinator)
        record = found.producers.get(name)
        if record is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    if record is None:
        return _Described(
            error_code=int(code),
            transactional_id=name,
            transaction_state="",
            transaction_timeout_ms=0,
            transaction_start_time_ms=NO_TIME,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            topics=[],
        )
    topics: dict[str, list[int]] = {}
    for tp in sorted(record.partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return _Described(
        error_code=0,
        transactional_id=name,
        transaction_state=STATE_NAMES[record.state],
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.start_ms,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        topics=[
            _Described.TopicData(topic=topic, partitions=numbers)
            for topic, numbers in topics.items()
        ],
    )


def list_transactions(
    coordinators: TransactionCoordinators,
    clock: Clock,
    call: ApiCall[ListTransactionsResponse],
    request: ListTransactionsRequest,
) -> Steps:
    wanted = set(request.state_filters)
    unknown = sorted(wanted - set(STATE_NAMES.values()))
    loaded = [each for each in coordinators if isinstance(each, TransactionCoordinator)]
    if len(loaded) < len(list(coordinators)):
        code = int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        call.respond(
            ListTransactionsResponse(
                error_code=code, unknown_state_filters=[], transaction_states=[]
            )
        )
        return
    producers = set(request.producer_id_filters)
    oldest_start_ms = clock.wall_ms() - (request.duration_filter or NO_TIME)
    # A copy: ids may come and go while others have their turn.
    known = [entry for coordinator in loaded for entry in coordinator.producers]
    rows = []
    for name, record in known:
        yield None
        if (
            (not wanted or STATE_NAMES[record.state] in wanted)
            and (not producers or record.producer_id in producers)
            and (
                request.duration_filter < 0
                or (record.start_ms != NO_TIME and record.start_ms <= oldest_start_ms)
            )
        ):
            listed = _Listed(
                transactional_id=name,
                producer_id=record.producer_id,
                transaction_state=STATE_NAMES[record.state],
            )
            rows.append(listed)
    call.respond(
        ListTransactionsResponse(
            error_code=0, unknown_state_filters=unknown, transaction_states=rows
        )
    )


NOT_KNOWN = -1
"""In place of a sequence, time or offset that does not exist."""

_Topic = DescribeProducersResponse.TopicResponse
_Partition = _Topic.PartitionResponse


def describe_producers(
    replicas: ReplicaManager,
    call: ApiCall[DescribeProducersResponse],
    request: DescribeProducersRequest,
) -> Steps:
    topics = []
    described: set[TopicPartition] = set()
    for topic in request.topics:
        rows = []
        for number in topic.partition_indexes:
            tp = TopicPartition(topic.name, number)
            # Each partition once: it may have many producers.
            if tp not in described:
                described.add(tp)
                rows.append((yield from _described_producers(replicas, tp)))
            yield None
        topics.append(_Topic(name=topic.name, partitions=rows))
        yield None
    call.respond(DescribeProducersResponse(topics=topics))


def _described_producers(
    replicas: ReplicaManager, tp: TopicPartition
) -> Generator[None, None, _Partition]:
    try:
        # Not only of a leader: an operator asks a broker for all of its replicas.
        known = replicas.in_service(tp).log.producer_state
    except KafkaError as failure:
        return _Partition(
            partition_index=tp.partition,
            error_code=int(failure.code),
            error_message=str(failure),
            active_producers=[],
        )
    ongoing = known.transactions.ongoing
    producers = []
    # Their ids alone: producers may come and go while others have their turn.
    for producer_id in known.ids():
        entry = known.get(producer_id)
        if entry is not None:
            producers.append(_producer(entry, ongoing.get(producer_id, NOT_KNOWN)))
        yield None
    return _Partition(
        partition_index=tp.partition,
        error_code=0,
        error_message=None,
        active_producers=producers,
    )


def _producer(entry: ProducerEntry, first_offset: int) -> _Partition.ProducerState:
    last = entry.batches[-1] if entry.batches else None
    return _Partition.ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=NOT_KNOWN if last is None else last.last_sequence,
        last_timestamp=NOT_KNOWN if last is None else last.timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=first_offset,
    )


_Members = dict[LedgerKey, list[tuple[int, MemberRecord]]]


def describe_sinks(
    coordinators: TransactionCoordinators,
    clock: Clock,
    call: ApiCall[DescribeSinksResponse],
    request: DescribeSinksRequest,
) -> Steps:
    if max(len(request.sinks), len(request.producers)) > MOST_NAMES or request.most < 1:
        text = f"a request names at most {MOST_NAMES} sinks and producers, and wants 1 row or more"
        call.respond(_refused(ErrorCode.INVALID_REQUEST, text))
        return
    loaded = [each for each in coordinators if isinstance(each, TransactionCoordinator)]
    if len(loaded) < len(list(coordinators)):
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        call.respond(_refused(code, code.meaning))
        return
    most = min(request.most, MOST_ROWS)
    rows: list[SinkQuery] = []
    for coordinator in loaded:
        yield from _add_rows(coordinator.batches, clock.monotonic_ms(), request, most + 1, rows)
    call.respond(DescribeSinksResponse(more=len(rows) > most, queries=rows[:most]))


def _refused(code: ErrorCode, text: str) -> DescribeSinksResponse:
    return DescribeSinksResponse(error_code=int(code), error_message=text)


def _add_rows(
    batches: MicroBatchCommits,
    now_ms: int,
    request: DescribeSinksRequest,
    most: int,
    rows: list[SinkQuery],
) -> Generator[None, None, None]:
    sinks, producers = set(request.sinks), set(request.producers)
    members: _Members = {}
    # Copies: both may change while others have their turn.
    for producer_id, record in list(batches.members()):
        yield None
        members.setdefault(record.ledger, []).append((producer_id, record))
    for key, ledger in list(batches.ledgers()):
        yield None
        if len(rows) >= most:
            return
        of_query = members.get(key, [])
        if sinks and key.sink not in sinks:
            continue
        if producers and not any(producer_id in producers for producer_id, _ in of_query):
            continue
        is_note = names_a_sink(key.sink, key.query, ledger.owner)
        if not of_query and (is_note or ledger.last == NO_BATCH):
            # The origins of a whole sink, a query that has tried, or one that writes elsewhere.
            continue
        if producers:
            # The requested producers come first, before the others are cut.
            of_query.sort(key=lambda each: each[0] not in producers)
        rows.append(_row(batches, now_ms, key, ledger, of_query))


def _row(
    batches: MicroBatchCommits,
    now_ms: int,
    key: LedgerKey,
    ledger: LedgerRecord,
    members: list[tuple[int, MemberRecord]],
) -> SinkQuery:
    return SinkQuery(
        sink=key.sink,
        query=key.query,
        committed=CommittedBy(ledger.owner, ledger.run, ledger.rows, ledger.winner),
        last=NEVER if ledger.last == NO_BATCH else ledger.last,
        markers=len(ledger.ends),
        origins=len(ledger.origins),
        members_total=len(members),
        members=[
            _member(batches, now_ms, producer_id, record)
            for producer_id, record in members[:MOST_MEMBERS]
        ],
    )


def _member(
    batches: MicroBatchCommits, now_ms: int, producer_id: int, record: MemberRecord
) -> OpenMember:
    touched_ms = batches.touched.get((record.ledger, record.batch))
    return OpenMember(
        producer_id=producer_id,
        epoch=record.epoch,
        batch=record.batch,
        timeout_ms=record.timeout_ms,
        idle_ms=UNKNOWN_IDLE if touched_ms is None else max(0, now_ms - touched_ms),
        aborting=record.aborting,
        partitions=sorted(islice(record.partitions, MOST_PARTITIONS)),
    )
