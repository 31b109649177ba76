"""DescribeSinks: what the coordinators on this broker know of exactly-once sinks.

Only what is known already is told: nothing is read, and nothing is changed by asking. Rows and
members have limits, so one request has a bounded cost. Source: R-CON6.
"""

from collections.abc import Generator
from itertools import islice

from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ports import Clock
from storage_engine.core.transactions.micro_batch_commits import MicroBatchCommits
from storage_engine.core.transactions.transaction_state import (
    NO_BATCH,
    LedgerKey,
    LedgerRecord,
    MemberRecord,
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

_Members = dict[LedgerKey, list[tuple[int, MemberRecord]]]


def handle(
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
            # Those that were asked for, before the others are cut.
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
