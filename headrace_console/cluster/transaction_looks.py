"""Open transactions that hold up read_committed readers: their owners, and since when.

    last stable offset < high watermark   ->  DescribeProducers: the first open transaction there
                                          ->  ListTransactions, DescribeTransactions: its id
                                          ->  DescribeSinks: a task attempt of a Spark query

Sources: KIP-664, R-CON6. Partitions beyond a limit are returned without an owner.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

from headrace_console.cluster.broker_lines import Ask, Question
from headrace_console.cluster.snapshot import Ends, WaitingPartition
from storage_engine.client.metadata import ClusterMetadata
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.describe_sinks import API as DESCRIBE_SINKS
from storage_engine.protocol.apis.describe_sinks import DescribeSinksRequest
from storage_engine.protocol.messages.describe_producers import API as DESCRIBE_PRODUCERS
from storage_engine.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from storage_engine.protocol.messages.describe_transactions import API as DESCRIBE_TRANSACTIONS
from storage_engine.protocol.messages.describe_transactions import DescribeTransactionsRequest
from storage_engine.protocol.messages.list_transactions import API as LIST_TRANSACTIONS
from storage_engine.protocol.messages.list_transactions import ListTransactionsRequest

MOST_NAMED = 50
"""The most partitions whose producers one look asks for: the oldest ones."""


_Producer = DescribeProducersResponse.TopicResponse.PartitionResponse.ProducerState


class _Owner(TypedDict, total=False):
    """Fields of a WaitingPartition about the owner of its transaction."""

    transactional_id: str
    sink: tuple[str, str, int]
    coordinator: int
    timeout_ms: int
    state: str
    since_ms: int


class TransactionLooks:
    """Records since when each partition's last stable offset has not moved."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._since_ms: dict[TopicPartition, tuple[int, int]] = {}

    def look(
        self,
        metadata: ClusterMetadata,
        ends: Mapping[TopicPartition, Ends],
        well: Sequence[int],
        at_ms: int,
    ) -> tuple[WaitingPartition, ...]:
        """Return the partitions whose readers wait now, the longest waiting first."""
        self._well = well
        held = {
            tp: (each.stable, each.high_watermark)
            for tp, each in ends.items()
            if each.stable is not None
            and each.high_watermark is not None
            and each.stable < each.high_watermark
        }
        kept = {}
        for tp, (stable, _) in held.items():
            before = self._since_ms.get(tp)
            kept[tp] = before if before is not None and before[0] == stable else (stable, at_ms)
        self._since_ms = kept
        if not held:
            return ()
        rows = [
            WaitingPartition(tp=tp, stable_offset=stable, end_offset=end, since_ms=kept[tp][1])
            for tp, (stable, end) in held.items()
        ]
        rows.sort(key=lambda row: (row.since_ms or 0, row.tp))
        return tuple(self._named(metadata, rows))

    def _named(
        self, metadata: ClusterMetadata, rows: list[WaitingPartition]
    ) -> list[WaitingPartition]:
        producers = self._producers(metadata, [row.tp for row in rows[:MOST_NAMED]])
        owners = self._owners({each.producer_id for each in producers.values()})
        found = []
        for row in rows:
            producer = producers.get(row.tp)
            if producer is not None:
                row = replace(
                    row,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                    first_offset=producer.current_txn_start_offset,
                    **owners.get(producer.producer_id, {}),
                )
            found.append(row)
        return found

    def _producers(
        self, metadata: ClusterMetadata, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, _Producer]:
        """Return each partition's producer with the first open transaction there."""
        by_leader: dict[int, dict[str, list[int]]] = {}
        for tp in partitions:
            leader = metadata.topics[tp.topic].partitions[tp.partition].leader
            by_leader.setdefault(leader, {}).setdefault(tp.topic, []).append(tp.partition)
        questions = {
            broker: [
                (
                    DESCRIBE_PRODUCERS,
                    DescribeProducersRequest(
                        topics=[
                            DescribeProducersRequest.TopicRequest(
                                name=name, partition_indexes=numbers
                            )
                            for name, numbers in topics.items()
                        ]
                    ),
                )
            ]
            for broker, topics in by_leader.items()
        }
        found = {}
        for (answer,) in self._ask(questions).values():
            if isinstance(answer, HeadraceError):
                continue
            for topic in answer.topics:
                for row in topic.partitions:
                    opened = [p for p in row.active_producers if p.current_txn_start_offset >= 0]
                    if opened:
                        first = min(opened, key=lambda each: each.current_txn_start_offset)
                        found[TopicPartition(topic.name, row.partition_index)] = first
        return found

    def _owners(self, producer_ids: set[int]) -> dict[int, _Owner]:
        """Return open transactions' owners by producer id, as far as coordinators report them."""
        if not producer_ids:
            return {}
        listing = ListTransactionsRequest(
            state_filters=[], producer_id_filters=sorted(producer_ids), duration_filter=-1
        )
        sinks = DescribeSinksRequest(producers=sorted(producer_ids))
        asked: list[Question] = [(LIST_TRANSACTIONS, listing), (DESCRIBE_SINKS, sinks)]
        answers = self._ask(dict.fromkeys(self._well, asked))
        owners: dict[int, _Owner] = {}
        named: dict[int, list[str]] = {}
        for broker, (listed, described) in answers.items():
            if not isinstance(described, HeadraceError):
                for query in described.queries:
                    for member in query.members:
                        owners[member.producer_id] = {
                            "sink": (query.sink, query.query, member.batch),
                            "coordinator": broker,
                            "timeout_ms": member.timeout_ms,
                            "state": "Aborting" if member.aborting else "Ongoing",
                        }
            if not isinstance(listed, HeadraceError):
                for row in listed.transaction_states:
                    named.setdefault(broker, []).append(row.transactional_id)
        owners.update(self._described(named))
        return owners

    def _described(self, named: Mapping[int, list[str]]) -> dict[int, _Owner]:
        questions = {
            broker: [(DESCRIBE_TRANSACTIONS, DescribeTransactionsRequest(transactional_ids=names))]
            for broker, names in named.items()
        }
        found: dict[int, _Owner] = {}
        for broker, (answer,) in self._ask(questions).items():
            if isinstance(answer, HeadraceError):
                continue
            for row in answer.transaction_states:
                if row.error_code:
                    continue
                found[row.producer_id] = {
                    "transactional_id": row.transactional_id,
                    "coordinator": broker,
                    "timeout_ms": row.transaction_timeout_ms,
                    "state": row.transaction_state,
                }
                if row.transaction_start_time_ms > 0:
                    found[row.producer_id]["since_ms"] = row.transaction_start_time_ms
        return found
