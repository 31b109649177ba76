"""The messages between brokers."""

import contextlib
from dataclasses import replace
from typing import Any

import pytest

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.ids import BrokerId, ControllerEpoch
from storage_engine.protocol.apis import update_metadata
from storage_engine.protocol.apis.registry import INTERNAL_RANGES, name_of, spec_for
from storage_engine.tests.protocol.apis.buffers import joined
from storage_engine.tests.protocol.apis.internal_messages import REQUESTS, RESPONSES

CODECS = [
    pytest.param(spec.encode_request, spec.decode_request, REQUESTS[key], id=f"{spec.name}-request")
    for key, spec in ((key, spec_for(key)) for key in INTERNAL_RANGES)
] + [
    pytest.param(
        spec.encode_response, spec.decode_response, RESPONSES[key], id=f"{spec.name}-response"
    )
    for key, spec in ((key, spec_for(key)) for key in INTERNAL_RANGES)
]


@pytest.mark.parametrize(("encode", "decode", "message"), CODECS)
def test_every_field_arrives_as_it_was_sent(encode: Any, decode: Any, message: Any) -> None:
    assert decode(0, memoryview(joined(encode(0, message)))) == message


@pytest.mark.parametrize(("encode", "decode", "message"), CODECS)
def test_a_damaged_message_is_read_or_refused(encode: Any, decode: Any, message: Any) -> None:
    data = joined(encode(0, message))
    for end in range(len(data)):
        with pytest.raises(InvalidRequestError):
            decode(0, memoryview(data[:end]))
        for byte in (b"\x00", b"\x7f", b"\xff"):
            with contextlib.suppress(InvalidRequestError):
                decode(0, memoryview(data[:end] + byte + data[end + 1 :]))


@pytest.mark.parametrize("key", INTERNAL_RANGES, ids=name_of)
def test_bytes_left_over_are_an_invalid_request(key: int) -> None:
    data = joined(spec_for(key).encode_request(0, REQUESTS[key]))
    with pytest.raises(InvalidRequestError, match="1 bytes are left over"):
        spec_for(key).decode_request(0, memoryview(data + b"\x00"))


def test_all_four_are_named_as_kafka_names_them() -> None:
    names = [name_of(key) for key in INTERNAL_RANGES]
    assert names == ["LeaderAndIsr", "StopReplica", "UpdateMetadata", "ControlledShutdown"]


def test_partitions_share_their_replicas_and_nobody_can_change_them() -> None:
    request = REQUESTS[6]
    other = replace(request.partitions[0], partition=7)
    body = joined(
        update_metadata.API.encode_request(
            0, replace(request, partitions=[*request.partitions, other])
        )
    )
    first, second = update_metadata.API.decode_request(0, memoryview(body)).partitions
    assert first.replicas is second.replicas
    shared = (first.isr, first.replicas, first.offline_replicas)
    assert [type(each) for each in shared] == [tuple, tuple, tuple]


def test_update_metadata_is_for_any_incarnation_unless_it_names_one() -> None:
    request = update_metadata.UpdateMetadataRequest(
        controller_id=BrokerId(1), controller_epoch=ControllerEpoch(1), brokers=[]
    )
    data = joined(update_metadata.API.encode_request(0, request))
    assert update_metadata.API.decode_request(0, memoryview(data)).broker_epoch == -1
