"""The answers of brokers to the controller's orders about partitions: LeaderAndIsr, StopReplica.

Both have the same fields, under Kafka's api keys, version 0, not flexible:

    response   error_code int16, [topic string, partition int32, error_code int16]
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from storage_engine.protocol.apis.spec import Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_leniently


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """The outcome of an order for one partition."""

    topic: str
    partition: int
    error_code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAnswer:
    """The answer has no partitions when the whole order is refused."""

    error_code: int = 0
    partitions: Sequence[PartitionOutcome] = ()


Answer = TypeVar("Answer", bound=OrderAnswer)


def order_answer_decoder(name: str, answer: type[Answer]) -> Callable[[int, memoryview], Answer]:
    """Return the decoder of answers of the API of that name."""

    def read(reader: Reader) -> Answer:
        return answer(
            error_code=reader.int16(), partitions=reader.array(8, lambda: _read_outcome(reader))
        )

    def decode(version: int, body: memoryview) -> Answer:
        return decode_leniently(f"{name} response of version {version}", body, False, read)

    return decode


def _read_outcome(reader: Reader) -> PartitionOutcome:
    return PartitionOutcome(
        topic=reader.name(), partition=reader.int32(), error_code=reader.int16()
    )


def encode_order_answer(version: int, answer: OrderAnswer) -> list[Buffer]:
    """Encode an answer of either API."""
    writer = Writer(flexible=False)
    writer.int16(answer.error_code)
    writer.count(len(answer.partitions))
    for outcome in answer.partitions:
        writer.string(outcome.topic)
        writer.int32(outcome.partition)
        writer.int16(outcome.error_code)
    return [writer.data]
