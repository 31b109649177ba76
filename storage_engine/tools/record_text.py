"""Records as JSON documents, for people and scripts.

Nothing is lost: bytes that are not UTF-8 stand as base64 under a name of their own. Python runs per
record here, since JSON is made of Python's objects anyway; what has to be fast uses `line_records`.
"""

import base64
from collections.abc import Iterator

from storage_engine.protocol.records.record_batch import BatchHeader
from storage_engine.protocol.records.record_decoder import DecodedRecords, iter_decoded
from storage_engine.tools.document import Document


def documents(records: DecodedRecords) -> Iterator[Document]:
    """Makes a document of each record: offset, timestamp, key, value, headers. A value that is not
    UTF-8 text is null, and `value_base64` has its bytes; keys and headers likewise.
    """
    count = len(records)
    headers = records.headers.to_pylist() if records.headers is not None else [None] * count
    for offset, timestamp_ms, key, value, own_headers in zip(
        records.offsets.to_pylist(),
        records.timestamps_ms.to_pylist(),
        records.keys.to_pylist(),
        records.values.to_pylist(),
        headers,
        strict=True,
    ):
        document: Document = {"offset": offset, "timestamp": timestamp_ms}
        put_bytes(document, "key", key)
        put_bytes(document, "value", value)
        document["headers"] = [_header(each["key"], each["value"]) for each in own_headers or ()]
        yield document


def put_bytes(document: Document, name: str, data: bytes | None) -> None:
    """Set `name` to the text, or to null with the bytes under `<name>_base64`."""
    document[name] = None
    if data is None:
        return
    try:
        document[name] = data.decode("utf-8")
    except UnicodeDecodeError:
        document[f"{name}_base64"] = base64.b64encode(data).decode("ascii")


def describe_records(batch: memoryview, header: BatchHeader) -> list[Document]:
    """The records of one whole batch; none for a control batch, whose records are markers."""
    if header.is_control:
        return []
    decoded = iter_decoded(bytes(batch), include_headers=True)
    return [document for records in decoded for document in documents(records)]


def _header(key: str, value: bytes | None) -> Document:
    document: Document = {"key": key}
    put_bytes(document, "value", value)
    return document
