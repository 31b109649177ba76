"""Open transactions that hold up read_committed readers; and what coordinators know of sinks."""

from collections.abc import Sequence
from dataclasses import asdict

from headrace_console.cluster.broker_lines import BrokerLines, unanswered
from headrace_console.cluster.snapshot import Snapshot, WaitingPartition
from headrace_console.paging import Page
from headrace_console.problem import ConsoleError
from headrace_console.screens.overview import unanswered as watcher_unanswered
from headrace_console.screens.problems import owner_words, remedy
from storage_engine.core.errors import ErrorCode, HeadraceError, UnsupportedVersionError
from storage_engine.protocol.apis.describe_sinks import API as DESCRIBE_SINKS
from storage_engine.protocol.apis.describe_sinks import (
    NEVER,
    UNKNOWN_IDLE,
    DescribeSinksRequest,
    SinkQuery,
)
from storage_engine.protocol.apis.micro_batch_fields import UNKNOWN_ROWS
from storage_engine.tools.document import Document

ASK_TIMEOUT_MS = 2_000


def waiting_row(row: WaitingPartition, now_ms: int) -> Document:
    """Return a waiting partition as a document of the API."""
    age_ms = None if row.since_ms is None else max(0, now_ms - row.since_ms)
    since = "" if age_ms is None else f" It has been open for {age_ms / 1000:.0f} s."
    document = asdict(row)
    del document["tp"]
    return {
        **document,
        **row.tp._asdict(),
        "waiting": row.end_offset - row.stable_offset,
        "age_ms": age_ms,
        "sink": None
        if row.sink is None
        else {"sink": row.sink[0], "query": row.sink[1], "batch": row.sink[2]},
        "words": f"{owner_words(row)} holds up readers of {row.tp} at offset {row.stable_offset}."
        f"{since} {remedy(row)}",
    }


def waiting_of(snapshot: Snapshot, topics: Sequence[str], now_ms: int) -> list[Document]:
    """Return the transactions that hold up readers of these topics, the oldest 100."""
    wanted = set(topics)
    rows = [row for row in snapshot.open_transactions if row.tp.topic in wanted]
    return [waiting_row(row, now_ms) for row in rows[:100]]


def waiting_list(snapshot: Snapshot, page: Page, now_ms: int, *, topic: str | None) -> Document:
    """Return a page of partitions whose readers wait."""
    rows = [row for row in snapshot.open_transactions if topic is None or row.tp.topic == topic]
    paged = page.of(
        rows,
        name=lambda row: str(row.tp),
        keys={
            "since_ms": lambda row: row.since_ms,
            "name": lambda row: row.tp,
            "waiting": lambda row: row.end_offset - row.stable_offset,
        },
        default="since_ms",
    )
    return paged.document(
        lambda row: waiting_row(row, now_ms),
        as_of_ms=snapshot.at_ms,
        unanswered=watcher_unanswered(snapshot),
    )


class NoSinksError(ConsoleError):
    """The brokers have no API for sinks."""

    def __init__(self) -> None:
        super().__init__(
            "not_here",
            "these brokers have no exactly-once sinks of Spark: only Headrace has that API",
        )


def ask_sinks(
    lines: BrokerLines, snapshot: Snapshot, sinks: Sequence[str] = ()
) -> tuple[list[tuple[int, SinkQuery]], list[Document]]:
    """Return the queries of sinks with their coordinators, and the brokers that did not answer.
    NoSinksError if none has the API."""
    addresses = snapshot.addresses
    question = (DESCRIBE_SINKS, DescribeSinksRequest(sinks=list(sinks)))
    answers = lines.ask({b: [question] for b in addresses}, addresses, timeout_ms=ASK_TIMEOUT_MS)
    silent = unanswered(answers, "its sinks")
    rows: list[tuple[int, SinkQuery]] = []
    not_served = 0
    for broker, answer in sorted(answers.items()):
        if isinstance(answer, HeadraceError):
            continue
        (found,) = answer
        if isinstance(found, UnsupportedVersionError):
            not_served += 1
        elif found.error_code:
            why = found.error_message or ErrorCode.of(found.error_code).meaning
            silent.append({"broker": broker, "what": "its sinks", "why": why})
        else:
            rows += [(broker, query) for query in found.queries]
            if found.more:
                why = "it has more sinks than one answer holds; filter by the name"
                silent.append({"broker": broker, "what": "the rest of its sinks", "why": why})
    answered = sum(not isinstance(answer, HeadraceError) for answer in answers.values())
    if not_served and not_served == answered:
        raise NoSinksError
    return rows, silent


def sink_row(broker: int, query: SinkQuery) -> Document:
    """Return a query of a sink as a document of the API."""
    committed = query.committed
    return {
        "sink": query.sink,
        "query": query.query,
        "last_batch": None if query.last == NEVER else query.last,
        "rows": None if committed.rows == UNKNOWN_ROWS else committed.rows,
        "run_id": None if committed.run is None else str(committed.run),
        "owner": committed.owner or None,
        "committed_ms": None,
        "markers_missing": query.markers,
        "open_members": [
            {
                "producer_id": member.producer_id,
                "epoch": member.epoch,
                "batch": member.batch,
                "partitions": [tp._asdict() for tp in member.partitions],
                "idle_ms": None if member.idle_ms == UNKNOWN_IDLE else member.idle_ms,
                "timeout_ms": member.timeout_ms,
                "state": "aborting" if member.aborting else "open",
            }
            for member in query.members
        ],
        "open_members_total": query.members_total,
        "origins": query.origins,
        "coordinator": broker,
    }


def sink_list(lines: BrokerLines, snapshot: Snapshot, page: Page) -> Document:
    """Return a page of sinks with their queries."""
    rows, silent = ask_sinks(lines, snapshot)
    paged = page.of(
        rows,
        name=lambda row: f"{row[1].sink} {row[1].query}",
        keys={
            "sink": lambda row: (row[1].sink, row[1].query),
            "open_members": lambda row: row[1].members_total,
            "last_batch": lambda row: row[1].last,
        },
        default="sink",
    )
    return paged.document(lambda row: sink_row(*row), as_of_ms=snapshot.at_ms, unanswered=silent)
