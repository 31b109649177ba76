"""AddPartitionsToTxn: producers (versions 0-3), and leaders that verify or enlist (4 and 5).

A partition that doesn't exist is answered with an error, and then the others of the transaction are
not attempted. Source: KIP-98, KIP-890.
"""

from collections.abc import Generator
from dataclasses import dataclass

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.coordinators.coordinators import TransactionCoordinators
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.transactions.fenced_producers import code_for
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.transactions.partition_requests import (
    Outcomes,
    answer_leaders,
    enlist,
    not_attempted,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import GROUP_OFFSETS_TOPIC, INTERNAL_TOPICS, TopicPartition
from storage_engine.core.ports import Clock
from storage_engine.core.security.acl_rules import ResourceType
from storage_engine.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)

FIRST_VERSION_BETWEEN_BROKERS = 4
FIRST_VERSION_WITH_PRODUCER_FENCED = 2
FIRST_VERSION_WITH_ABORTABLE = 5

_Result = AddPartitionsToTxnResponse.AddPartitionsToTxnResult


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitionsToTxnHandler:
    """Answers AddPartitionsToTxn."""

    coordinators: TransactionCoordinators
    metadata: MetadataCache
    clock: Clock

    def handle(
        self, call: ApiCall[AddPartitionsToTxnResponse], request: AddPartitionsToTxnRequest
    ) -> Steps:
        if call.version >= FIRST_VERSION_BETWEEN_BROKERS:
            yield from self._handle_leaders(call, request)
            return

        def respond(outcomes: Outcomes) -> Steps:
            rows = yield from _rows(outcomes, call.version)
            call.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=rows))

        def on_outcomes(outcomes: Outcomes) -> None:
            call.run(respond(outcomes))

        partitions = []
        refused: Outcomes = {}
        for topic in request.v3_and_below_topics:
            for number in topic.partitions:
                tp = TopicPartition(topic.name, number)
                partitions.append(tp)
                refused.update(self._refused([tp]))
                yield None
        if refused:
            yield from respond(not_attempted(partitions, refused))
            return
        enlist(
            self.coordinators,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            partitions,
            self.clock,
            on_outcomes,
            refusal=lambda: _lost(call, {tp.topic for tp in partitions}),
        )

    def _handle_leaders(
        self, call: ApiCall[AddPartitionsToTxnResponse], request: AddPartitionsToTxnRequest
    ) -> Steps:
        def respond(outcomes: list[Outcomes]) -> Steps:
            results = []
            for transaction, each in zip(request.transactions, outcomes, strict=True):
                rows = yield from _rows(each, call.version)
                results.append(
                    _Result(transactional_id=transaction.transactional_id, topic_results=rows)
                )
                yield None
            call.respond(AddPartitionsToTxnResponse(results_by_transaction=results))

        def on_outcomes(outcomes: list[Outcomes]) -> None:
            call.run(respond(outcomes))

        return answer_leaders(
            self.coordinators,
            request.transactions,
            self.clock,
            on_outcomes,
            refused=lambda partitions: self._refused(partitions, offsets=True),
            refusal=call.refusal,
        )

    def _refused(self, partitions: list[TopicPartition], *, offsets: bool = False) -> Outcomes:
        """The partitions that no transaction can write to, with the error codes. `offsets` lets
        partitions of the offsets topic through, because group coordinators enlist them."""
        refused = {}
        for tp in partitions:
            if tp.topic in INTERNAL_TOPICS and not (offsets and tp.topic == GROUP_OFFSETS_TOPIC):
                refused[tp] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif tp.partition not in (self.metadata.partitions(tp.topic) or {}):
                refused[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused


def _lost(call: ApiCall[AddPartitionsToTxnResponse], topics: set[str]) -> ErrorCode:
    """Why the producer may not write to all of these topics any more; NONE while it may."""
    refusal = call.refusal()
    if refusal is not ErrorCode.NONE:
        return refusal
    refused = call.refused(ResourceType.TOPIC, topics)
    if refused is None:
        # Too many to ask about in one go: it sends the request again.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if refused else ErrorCode.NONE


def _rows(
    outcomes: Outcomes, version: int
) -> Generator[None, None, list[AddPartitionsToTxnTopicResult]]:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for tp, code in outcomes.items():
        yield None
        if version >= FIRST_VERSION_WITH_ABORTABLE and code is ErrorCode.INVALID_TXN_STATE:
            code = ErrorCode.TRANSACTION_ABORTABLE
        number = code_for(code, version, FIRST_VERSION_WITH_PRODUCER_FENCED)
        row = AddPartitionsToTxnPartitionResult(
            partition_index=tp.partition, partition_error_code=number
        )
        by_topic.setdefault(tp.topic, []).append(row)
    return [
        AddPartitionsToTxnTopicResult(name=topic, results_by_partition=rows)
        for topic, rows in by_topic.items()
    ]
