"""ControlledShutdown: a broker asks the controller to move its leaderships away before it stops
(R-CTL9).

A message of our own under Kafka's api key 7, version 0, not flexible. Field order:

    request    broker_id int32, broker_epoch int64
    response   error_code int16, partitions it still leads [topic string, partition int32]
"""

from collections.abc import Sequence
from dataclasses import dataclass

from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_leniently, decode_with


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownRequest:
    """A broker asks to stop; `broker_epoch` is its present incarnation."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlledShutdownResponse:
    """The broker may stop when there is no error and no partition remains."""

    error_code: int = 0
    remaining_partitions: Sequence[TopicPartition] = ()


def decode_request(version: int, body: memoryview) -> ControlledShutdownRequest:
    return decode_with(
        f"ControlledShutdown request of version {version}",
        body,
        False,
        lambda reader: ControlledShutdownRequest(
            broker_id=BrokerId(reader.int32()), broker_epoch=BrokerEpoch(reader.int64())
        ),
    )


def encode_request(version: int, request: ControlledShutdownRequest) -> list[Buffer]:
    writer = Writer(flexible=False)
    writer.int32(request.broker_id)
    writer.int64(request.broker_epoch)
    return [writer.data]


def decode_response(version: int, body: memoryview) -> ControlledShutdownResponse:
    return decode_leniently(
        f"ControlledShutdown response of version {version}", body, False, _read_response
    )


def _read_response(reader: Reader) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(
        error_code=reader.int16(),
        remaining_partitions=reader.array(6, lambda: TopicPartition(reader.name(), reader.int32())),
    )


def encode_response(version: int, response: ControlledShutdownResponse) -> list[Buffer]:
    writer = Writer(flexible=False)
    writer.int16(response.error_code)
    writer.count(len(response.remaining_partitions))
    for topic, partition in response.remaining_partitions:
        writer.string(topic)
        writer.int32(partition)
    return [writer.data]


API = ApiSpec(
    key=7,
    name="ControlledShutdown",
    min_version=0,
    max_version=0,
    first_flexible_version=None,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
