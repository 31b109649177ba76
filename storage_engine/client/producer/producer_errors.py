"""The errors of a producer that need different reactions. Each is a HeadraceError of one line.

error                    raised by            what to do
ConfigError              Producer(...)        correct the setting
SerializationError       send                 correct the record or the encoder
RecordTooLargeError      send, the future     shorten the record, or raise the limit it names
BufferFullError          send                 wait, or slow down
DeadlineExceededError    the future           the brokers were away for delivery.timeout.ms: the
                                              record may be there all the same; send it again
                                              where twice is better than not at all
TriesExhaustedError      the future           as DeadlineExceededError: it was sent again `retries`
                                              times, and failed for the reason that it names
KafkaError, retriable    the future           as DeadlineExceededError
KafkaError, final        the future           correct what it names; sending again is no use
RefusedRecordsError      the future           send it again: other records of its batch are wrong,
                                              and none of the batch is there
ProducerClosedError      send                 the record was not sent
ProducerClosedError      the future           as DeadlineExceededError
ProducerFencedError      transactions         another producer has the transactional.id: close this
CommitRefusedError       send_offsets_...     the member has lost its partitions: abort
TransactionFailedError   send, commit_...     a record was not sent, or nothing is open: abort

What else the calls of transactions raise is a DeadlineExceededError, after which commit_transaction
may be called again, and a KafkaError, after which the transaction is to be aborted.
"""

from collections.abc import Sequence

from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition


class SerializationError(HeadraceError):
    """A key, value or header that can't be made into bytes."""


class BufferFullError(DeadlineExceededError):
    """buffer.memory was full for max.block.ms: records come faster than brokers take them."""


class TriesExhaustedError(HeadraceError):
    """A batch was sent as often as `retries` allows, each time without success."""


class ProducerClosedError(HeadraceError):
    """The producer was closed before the record was acknowledged, or is closed."""


class ProducerFencedError(KafkaError):
    """Another producer has taken the transactional id over."""

    code = ErrorCode.PRODUCER_FENCED


class RefusedRecordsError(KafkaError):
    """A batch was refused because some of its records don't fit the topic."""

    def __init__(
        self,
        tp: TopicPartition,
        message: str,
        code: ErrorCode,
        *,
        records: Sequence[tuple[int, str | None]],
    ) -> None:
        super().__init__(
            f"{tp}: the batch is not written because of some of its records: {message}", code
        )
        self.records = records
        """The place in the batch, from 0, of each wrong record that is named, and what is wrong."""
        # Of several records, the code of the batch may be that of another one.
        own_code = code if len(records) == 1 else ErrorCode.INVALID_RECORD
        self._of_wrong = {
            place: KafkaError(f"{tp}: {reason or message}", own_code) for place, reason in records
        }

    def of_record(self, place: int) -> KafkaError:
        """The error of one record of the batch: its own where it is one of the wrong ones."""
        return self._of_wrong.get(place, self)


class TransactionFailedError(HeadraceError):
    """The transaction can't be committed any more."""
