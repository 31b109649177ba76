"""DescribeTransactions and ListTransactions: the transactions of the coordinators on this broker.

A coordinator that is still loading answers nothing. The members of sinks have no transactional id
of their own, and are not listed. Source: KIP-664.
"""

from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Clock
from storage_engine.core.transactions.transaction_state import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TransactionRecord,
    TransactionState,
)
from storage_engine.core.transactions.transactions import TransactionCoordinator
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


def describe(
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


def list_all(
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
