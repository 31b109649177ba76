"""The round trip and the damage of a message between brokers."""

import contextlib
from typing import Any

import pytest

from storage_engine.core.errors import InvalidRequestError
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch
from storage_engine.protocol.apis.order_answers import PartitionOutcome
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.tests.protocol.apis.buffers import joined

ORDER: dict[str, Any] = {
    "controller_id": BrokerId(1),
    "controller_epoch": ControllerEpoch(2),
    "broker_epoch": BrokerEpoch(2**40),
    "order_number": 2**41,
}
"""The common fields of the controller's orders, with values other than their defaults."""
PART: dict[str, Any] = {"full": True, "part": 3, "goes_on": True}
ANSWER: dict[str, Any] = {
    "error_code": 1,
    "partitions": [PartitionOutcome(topic="flights", partition=2, error_code=3)],
}


def check_messages(api: AnyApi, request: Any, response: Any) -> None:
    """Every field arrives as it was sent. A damaged message is read or refused, and a request with
    bytes left over is refused."""
    for encode, decode, message in (
        (api.encode_request, api.decode_request, request),
        (api.encode_response, api.decode_response, response),
    ):
        data = joined(encode(0, message))
        assert decode(0, memoryview(data)) == message
        for end in range(len(data)):
            with pytest.raises(InvalidRequestError):
                decode(0, memoryview(data[:end]))
            for byte in (b"\x00", b"\x7f", b"\xff"):
                with contextlib.suppress(InvalidRequestError):
                    decode(0, memoryview(data[:end] + byte + data[end + 1 :]))
    left_over = joined(api.encode_request(0, request)) + b"\x00"
    with pytest.raises(InvalidRequestError, match="1 bytes are left over"):
        api.decode_request(0, memoryview(left_over))
