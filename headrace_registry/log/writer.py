"""Writes to `_schemas`, as the one that has the transactional id.

    take over: InitProducerId fences the writer before, and ends its transaction
               -> all that is committed is read -> only now may ids be given
    write:     one transaction -> committed on all in-sync replicas -> read back -> answered

So a writer that was paused, and does not know that it was replaced, can't commit anything.
Source: R-SR3; KIP-98.
"""

from collections.abc import Sequence

from headrace_registry.log.follower import Follower
from storage_engine.client.cluster import Cluster
from storage_engine.client.producer.producer import Producer
from storage_engine.client.producer.producer_errors import (
    ProducerFencedError,
    TransactionFailedError,
)
from storage_engine.client.security.security_rows import Given
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    RecordTooLargeError,
)
from storage_engine.core.schemas.registry.records import Record
from storage_engine.core.schemas.registry.registry_error import (
    STORE_FAILED,
    TIMED_OUT,
    TOO_LARGE,
    RegistryError,
)
from storage_engine.net.deadline import Deadline

DELIVERY_TIMEOUT_MS = 15_000
TRANSACTION_TIMEOUT_MS = 30_000
TAKE_OVER_MS = 20_000


class FencedError(HeadraceError):
    """Another instance is the writer by now; nothing was written."""


class SchemasWriter:
    """One term as the writer. Not for several threads at once."""

    def __init__(self, producer: Producer, topic: str, follower: Follower) -> None:
        self._producer = producer
        self._topic = topic
        self._follower = follower
        self._end = 0
        """The offset up to which records were committed, exclusive."""
        self.is_usable = True
        """False after a failure whose outcome is open: another term begins with what came of it."""

    @classmethod
    def take_over(
        cls, settings: Given, topic: str, follower: Follower, cluster: Cluster
    ) -> "SchemasWriter":
        """`settings` of the producer. RegistryError when it takes too long."""
        deadline = Deadline.after(TAKE_OVER_MS)
        producer = Producer(
            {
                **settings,
                "linger.ms": 0,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "request.timeout.ms": DELIVERY_TIMEOUT_MS // 2,
                "max.block.ms": DELIVERY_TIMEOUT_MS,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "max.request.size": 8 << 20,
            }
        )
        try:
            producer.init_transactions()
            follower.read_to_end(cluster, deadline)
        except HeadraceError as error:
            producer.close(timeout_ms=0)
            raise _as_registry_error(error) from None
        return cls(producer, topic, follower)

    def write(self, records: Sequence[Record]) -> None:
        """Write the records, all or none; return when they are read back. RegistryError when they
        were not, FencedError when another has taken over."""
        deadline = Deadline.after(DELIVERY_TIMEOUT_MS + TRANSACTION_TIMEOUT_MS)
        try:
            self._producer.begin_transaction()
            futures = [
                self._producer.send(self._topic, value, key=key, partition=0)
                for key, value in records
            ]
            self._producer.commit_transaction()
        except HeadraceError as error:
            self._give_up(error)
        self._end = futures[-1].result().offset + 1
        self._follower.wait_for(self._end, deadline)

    def wait_until_read(self) -> None:
        """Return when all that was written is read back, also after a `write` that gave up on it:
        ids are given by the state. RegistryError when it takes too long."""
        self._follower.wait_for(self._end, Deadline.after(DELIVERY_TIMEOUT_MS))

    def _give_up(self, error: HeadraceError) -> None:
        if isinstance(error, ProducerFencedError) or isinstance(
            error.__cause__, ProducerFencedError
        ):
            self.is_usable = False
            raise FencedError("another registry is the writer") from error
        try:
            self._producer.abort_transaction()
        except HeadraceError:
            self.is_usable = False
        raise _as_registry_error(error) from error

    def close(self) -> None:
        self.is_usable = False
        self._producer.close(timeout_ms=0)


def _as_registry_error(error: HeadraceError) -> RegistryError:
    cause = error.__cause__ if isinstance(error, TransactionFailedError) else None
    cause = cause or error
    if isinstance(cause, RegistryError):
        return cause
    too_large = isinstance(cause, RecordTooLargeError) or (
        isinstance(cause, KafkaError) and cause.code is ErrorCode.MESSAGE_TOO_LARGE
    )
    if too_large:
        return RegistryError(
            TOO_LARGE, "Write failed because schema is too large: see max.message.bytes"
        )
    if isinstance(cause, DeadlineExceededError):
        return RegistryError(TIMED_OUT, f"Write to the Kafka store timed out: {cause}")
    return RegistryError(STORE_FAILED, f"Write to the Kafka store failed: {cause}")
