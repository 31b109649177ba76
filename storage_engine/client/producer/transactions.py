"""The transactions of one producer, as their coordinator has them.

    init -> begin -> enlist, send_offsets -> end(commits) -> begin ...

After a lost or retriable answer the same request goes to the present coordinator, until the
deadline. Each transaction has an epoch of its own (KIP-890), so that every broker refuses late
requests of the one before. Source: KIP-98, KIP-447, KIP-890. It is not thread-safe.
"""

from collections.abc import Callable, Iterable, Mapping

from storage_engine.client.asking import GROUP, TRANSACTION, ask_coordinator
from storage_engine.client.cluster import Cluster
from storage_engine.client.groups.group_requests import CommitRefusedError, GroupMetadata
from storage_engine.client.producer.producer_errors import ProducerFencedError
from storage_engine.client.producer.producer_requests import (
    ENLIST_VERSION,
    enlist_request,
    enlisted_codes,
    worst,
)
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition, by_topic
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages.add_offsets_to_txn import API as ADD_OFFSETS_TO_TXN
from storage_engine.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from storage_engine.protocol.messages.add_partitions_to_txn import API as ADD_PARTITIONS
from storage_engine.protocol.messages.end_txn import API as END_TXN
from storage_engine.protocol.messages.end_txn import EndTxnRequest
from storage_engine.protocol.messages.init_producer_id import API as INIT_PRODUCER_ID
from storage_engine.protocol.messages.init_producer_id import InitProducerIdRequest
from storage_engine.protocol.messages.txn_offset_commit import API as TXN_OFFSET_COMMIT
from storage_engine.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

_ADD_OFFSETS_VERSION = 3
_OFFSET_COMMIT_VERSION = 3
"""The newest versions of producers that enlist partitions before they write."""

_END_VERSION = 5
"""The version with which each transaction ends under the next epoch."""

_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)

_NO_MEMBERS_WORD = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)

_Topic = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic


class ProducerTransactions:
    """The transactions of one transactional id; between `begin` and `end`, `BatchWriter` writes in
    one."""

    def __init__(
        self, cluster: Cluster, transactional_id: str, *, timeout_ms: int, deadline_ms: int
    ) -> None:
        """`timeout_ms`: the coordinator aborts a transaction that is older. `deadline_ms`: of each
        operation with its retries."""
        self._cluster = cluster
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._deadline_ms = deadline_ms
        self.producer_id = -1
        self.epoch = -1
        self._is_empty = True

    def init(self) -> None:
        """Takes over the transactional id: a transaction that its last owner left open is aborted,
        and that owner is fenced."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
        )
        answer = self._ask(INIT_PRODUCER_ID, request, lambda answer: [answer.error_code])
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def begin(self) -> None:
        self._is_empty = True

    def enlist(self, partitions: Iterable[TopicPartition]) -> None:
        """Must be called before the first batch for these partitions."""
        message = enlist_request(self.transactional_id, self.producer_id, self.epoch, partitions)
        self._is_empty = False
        self._ask(ADD_PARTITIONS, message, enlisted_codes, version=ENLIST_VERSION)

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        """Commits the group's offsets (the next one to read of each partition) with the
        transaction. Raises CommitRefusedError when the member is not in the present generation."""
        if not offsets:
            return
        message = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group.group_id,
        )
        self._is_empty = False
        self._ask(
            ADD_OFFSETS_TO_TXN,
            message,
            lambda answer: [answer.error_code],
            version=_ADD_OFFSETS_VERSION,
        )
        row = _Topic.TxnOffsetCommitRequestPartition
        topics = [
            _Topic(
                name=name,
                partitions=[
                    row(
                        partition_index=number,
                        committed_offset=offset,
                        committed_leader_epoch=-1,
                        committed_metadata="",
                    )
                    for number, offset in rows
                ],
            )
            for name, rows in by_topic(offsets).items()
        ]
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=group.generation,
            member_id=group.member_id,
            group_instance_id=group.instance_id,
            topics=topics,
        )
        self._ask(
            TXN_OFFSET_COMMIT,
            commit,
            lambda answer: [row.error_code for each in answer.topics for row in each.partitions],
            version=_OFFSET_COMMIT_VERSION,
            key=(GROUP, group.group_id),
        )

    def end(self, *, commits: bool) -> None:
        """Ends the transaction; a transaction without records ends without a request. Once this
        returns, the outcome is decided."""
        if self._is_empty:
            return
        message = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        answer = self._ask(
            END_TXN, message, lambda answer: [answer.error_code], version=_END_VERSION
        )
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._is_empty = True

    def _ask(
        self,
        spec: ApiSpec[Req, Resp],
        message: Req,
        codes_of: Callable[[Resp], Iterable[int]],
        *,
        version: int | None = None,
        key: tuple[int, str] | None = None,
    ) -> Resp:
        """Asks the coordinator of `key`, by default the transaction's, and returns its answer."""
        what = f"'{self.transactional_id}'"

        def error_of(answer: Resp) -> KafkaError | None:
            code = worst(codes_of(answer))
            if code is ErrorCode.NONE:
                return None
            kind = KafkaError
            if code in _FENCED:
                kind = ProducerFencedError
            elif code in _NO_MEMBERS_WORD:
                kind = CommitRefusedError
            return kind(f"{spec.name} of {what}: {code.meaning}", code)

        _, answer = ask_coordinator(
            self._cluster,
            *(key or (TRANSACTION, self.transactional_id)),
            spec,
            message,
            error_of,
            what=what,
            version=version,
            deadline_ms=self._deadline_ms,
        )
        return answer
