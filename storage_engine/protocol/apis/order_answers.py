"""The common fields of the controller's orders to brokers, and the answers to orders about
partitions: LeaderAndIsr, StopReplica, UpdateMetadata."""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch
from storage_engine.protocol.apis.fields import boolean, int16, int32, int64, name, structs


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOrder:
    """An order of the controller to one broker."""

    controller_id: BrokerId = BrokerId(int32())
    controller_epoch: ControllerEpoch = ControllerEpoch(int32())
    broker_epoch: BrokerEpoch = BrokerEpoch(int64())
    """The incarnation of the receiver that the order is for (R-CTL4)."""
    order_number: int = int64()
    """Grows with each delivery of one controller epoch: an order with a smaller number was given up
    (R-CTL1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderInParts(ControllerOrder):
    """An order that may be too long for one request."""

    full: bool = boolean()
    """True when the order is about all partitions."""
    part: int = int32()
    """The number, from 0 on, of the part of a full order."""
    goes_on: bool = boolean()
    """True when another part follows."""


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
