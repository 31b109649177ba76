"""ControlledShutdown: a broker asks the controller to move its leaderships away before it stops
(R-CTL9).

A message of our own under Kafka's api key 7, not flexible. The answer has the partitions that the
broker still leads: [topic string, partition int32].
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.protocol.apis.fields import custom, int16, int32, int64
from storage_engine.protocol.apis.struct_codec import api
from storage_engine.protocol.apis.wire import Reader, Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest:
    """A broker asks to stop; `broker_epoch` is its present incarnation."""

    broker_id: BrokerId = BrokerId(int32())
    broker_epoch: BrokerEpoch = BrokerEpoch(int64())


def _read_partitions(reader: Reader) -> Sequence[TopicPartition]:
    return reader.array(6, lambda: TopicPartition(reader.name(), reader.int32()))


def _write_partitions(writer: Writer, partitions: Sequence[TopicPartition]) -> None:
    writer.count(len(partitions))
    for topic, partition in partitions:
        writer.string(topic)
        writer.int32(partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse:
    """The broker may stop when there is no error and no partition remains."""

    error_code: int = int16()
    remaining_partitions: Sequence[TopicPartition] = custom(
        _read_partitions, _write_partitions, 4, list
    )


API = api(7, ControlledShutdownRequest, ControlledShutdownResponse)
