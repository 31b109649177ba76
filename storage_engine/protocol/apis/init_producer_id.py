"""InitProducerId: gets a producer id and epoch, which make a producer's batches idempotent.

Versions: 2 flexible. 3 the producer's present id and epoch, to raise the epoch after an error
(KIP-360). 4 the error PRODUCER_FENCED. Source: Kafka's InitProducerIdRequest.json and
InitProducerIdResponse.json; KIP-98.
"""

from dataclasses import dataclass

from storage_engine.protocol.apis.spec import ApiSpec, Buffer
from storage_engine.protocol.apis.wire import Reader, Writer, decode_leniently, decode_with

FIRST_FLEXIBLE = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdRequest:
    """`transactional_id` None asks for an idempotent producer without transactions."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducerIdResponse:
    """Answer to an InitProducerIdRequest."""

    error_code: int = 0
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    throttle_time_ms: int = 0


def decode_request(version: int, body: memoryview) -> InitProducerIdRequest:
    return decode_with(
        f"InitProducerId request of version {version}",
        body,
        version >= FIRST_FLEXIBLE,
        lambda reader: _read_request(reader, version),
    )


def _read_request(reader: Reader, version: int) -> InitProducerIdRequest:
    transactional_id = reader.nullable_string()
    timeout_ms = reader.int32()
    producer_id = reader.int64() if version >= 3 else NO_PRODUCER_ID
    producer_epoch = reader.int16() if version >= 3 else NO_PRODUCER_EPOCH
    reader.tags()
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def encode_request(version: int, request: InitProducerIdRequest) -> list[Buffer]:
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    writer.nullable_string(request.transactional_id)
    writer.int32(request.transaction_timeout_ms)
    if version >= 3:
        writer.int64(request.producer_id)
        writer.int16(request.producer_epoch)
    writer.tags()
    return [writer.data]


def encode_response(version: int, response: InitProducerIdResponse) -> list[Buffer]:
    writer = Writer(flexible=version >= FIRST_FLEXIBLE)
    writer.int32(response.throttle_time_ms)
    writer.int16(response.error_code)
    writer.int64(response.producer_id)
    writer.int16(response.producer_epoch)
    writer.tags()
    return [writer.data]


def decode_response(version: int, body: memoryview) -> InitProducerIdResponse:
    return decode_leniently(
        f"InitProducerId response of version {version}",
        body,
        version >= FIRST_FLEXIBLE,
        _read_response,
    )


def _read_response(reader: Reader) -> InitProducerIdResponse:
    throttle_time_ms, error_code = reader.int32(), reader.int16()
    producer_id, producer_epoch = reader.int64(), reader.int16()
    reader.tags()
    return InitProducerIdResponse(
        error_code=error_code,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        throttle_time_ms=throttle_time_ms,
    )


API = ApiSpec(
    key=22,
    name="InitProducerId",
    min_version=0,
    max_version=4,
    first_flexible_version=FIRST_FLEXIBLE,
    decode_request=decode_request,
    encode_request=encode_request,
    decode_response=decode_response,
    encode_response=encode_response,
)
