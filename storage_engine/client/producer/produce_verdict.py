"""Decides from a leader's answer what to do with a batch.

A batch is sent again only where that can neither double nor reorder it. Source: KIP-98, KIP-360.
"""

import enum

from storage_engine.client.producer.producer_errors import RefusedRecordsError
from storage_engine.core.errors import ErrorCode, KafkaError, RecordTooLargeError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.produce import ProducePartitionResponse


class Verdict(enum.Enum):
    """The consequence of an answer for the batch."""

    DELIVERED = "the leader has it"
    RETRY = "the leader refused it; the same bytes again"
    RETRY_UNSURE = "the leader, or its successor, may have it; the same bytes again"
    RENEW = "the leader has lost the producer, and nobody has this or a later batch: as a new one"
    FINAL = "no retry helps"


_ACCEPTED = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})

_CERTAINLY_REFUSED = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CORRUPT_MESSAGE})
"""The retriable errors that rule out an append. NOT_LEADER_OR_FOLLOWER is not among them: a leader
that steps down while it waits for replicas answers so although it has appended."""

_SEQUENCE_LOST = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


def verdict_on(
    code: ErrorCode,
    *,
    idempotent: bool,
    earlier_failed: bool,
    perhaps_appended: bool,
    overtaken: bool = False,
) -> Verdict:
    """`earlier_failed`: a batch of the partition that was sent before is to be sent again, so this
    one leaves a gap. `perhaps_appended`: an earlier attempt with this batch has ended without a
    clear answer. `overtaken`: the leader has a batch that was sent after this one."""
    if code in _ACCEPTED:
        return Verdict.DELIVERED
    if code.retriable:
        return Verdict.RETRY if code in _CERTAINLY_REFUSED else Verdict.RETRY_UNSURE
    if code in _SEQUENCE_LOST and idempotent:
        if earlier_failed:
            return Verdict.RETRY
        if not (perhaps_appended or overtaken):
            return Verdict.RENEW
    return Verdict.FINAL


def final_error(
    tp: TopicPartition, batch_bytes: int, code: ErrorCode, answer: ProducePartitionResponse
) -> KafkaError:
    """Return the error of a batch that will never be accepted."""
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        return RecordTooLargeError(
            f"{tp}: a batch of {batch_bytes} bytes is larger than the topic's max.message.bytes; "
            "raise that setting, or make batches smaller (batch.size)"
        )
    first = answer.record_errors[0][1] if answer.record_errors else None
    message = answer.error_message or first or code.meaning
    if answer.record_errors:
        return RefusedRecordsError(tp, message, code, records=answer.record_errors)
    return KafkaError(f"{tp}: {message}", code)
