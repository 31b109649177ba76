"""The answers of brokers to the controller's orders about partitions: LeaderAndIsr, StopReplica."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.protocol.apis.fields import int16, int32, name, structs


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOutcome:
    """The outcome of an order for one partition."""

    topic: str = name()
    partition: int = int32()
    error_code: int = int16()


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderAnswer:
    """The answer has no partitions when the whole order is refused."""

    error_code: int = int16()
    partitions: Sequence[PartitionOutcome] = structs(PartitionOutcome)
