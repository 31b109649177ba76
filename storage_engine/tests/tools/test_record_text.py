"""Records as JSON documents: nothing is lost."""

import pyarrow as pa

from storage_engine.protocol.records.record_batch import read_header
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.tools.record_text import describe_records


def described(values, keys, headers=None):
    own = None if headers is None else pa.array(headers, HEADERS_TYPE)
    (batch,) = encode_batches(
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        own,
        timestamps_ms=pa.array([5] * len(values)),
    )
    return describe_records(memoryview(batch.data), read_header(batch.data))


def test_bytes_that_are_no_text_stand_as_base64_under_a_name_of_their_own():
    text, binary, null = described([b"v", b"\xff", None], ["ä".encode(), None, b"\xfe\xff"])
    assert text == {"offset": 0, "timestamp": 5, "key": "ä", "value": "v", "headers": []}
    assert (binary["value"], binary["value_base64"]) == (None, "/w==")
    assert "key_base64" not in binary, "a null key is not an empty one"
    assert (null["value"], null["key"], null["key_base64"]) == (None, None, "/v8=")
    assert "value_base64" not in null


def test_headers_keep_their_order_and_equal_names():
    given = [
        {"key": "h", "value": b"1"},
        {"key": "h", "value": None},
        {"key": "g", "value": b"\xff"},
    ]
    (document,) = described([b"v"], [None], [given])
    assert document["headers"] == [
        {"key": "h", "value": "1"},
        {"key": "h", "value": None},
        {"key": "g", "value": None, "value_base64": "/w=="},
    ]
