"""What has been written into ZooKeeper, every version in its order, from its own transaction log.

A watch may miss a version that was replaced at once; the log of the transactions holds each of
them. Format of `version-2/log.*` (jute, big-endian), as far as it is needed:

| part        | bytes | meaning                                                                 |
|-------------|-------|-------------------------------------------------------------------------|
| file header | 16    | "ZKLG", version, database id                                            |
| checksum    | 8     | of the transaction                                                      |
| length      | 4     | of the transaction; 0 where the preallocated rest begins                |
| header      | 32    | session, cxid (int32), zxid, time, type (int32)                         |
| body        | …     | of the type: 1 create, 5 set: path, data; 14 multi: count, (type, body) |
| end         | 1     | "B"                                                                     |
"""

import struct
from collections.abc import Iterator
from pathlib import Path

CREATE, SET, MULTI, CREATE2 = 1, 5, 14, 15

_HEADER = struct.Struct(">qiqqi")


def writes(directory: Path) -> Iterator[tuple[str, bytes]]:
    """(path, data) of every creation and change, oldest first; `directory` is the cluster's."""
    logs = sorted(directory.rglob("version-2/log.*"), key=lambda path: int(path.suffix[1:], 16))
    assert logs, f"no transaction log of ZooKeeper below {directory}"
    for path in logs:
        yield from _of_file(path.read_bytes())


def _of_file(content: bytes) -> Iterator[tuple[str, bytes]]:
    assert content[:4] == b"ZKLG"
    position = 16
    while position + 12 <= len(content):
        length = _int(content, position + 8)
        if length <= 0:
            return
        transaction = content[position + 12 : position + 12 + length]
        *_, kind = _HEADER.unpack_from(transaction)
        yield from _of_transaction(kind, transaction[_HEADER.size :])
        position += 12 + length + 1


def _of_transaction(kind: int, body: bytes) -> Iterator[tuple[str, bytes]]:
    if kind in (CREATE, CREATE2, SET):
        path, position = _buffer(body, 0)
        data, _ = _buffer(body, position)
        yield path.decode(), data
    elif kind == MULTI:
        position = 4
        for _ in range(_int(body, 0)):
            part_kind = _int(body, position)
            part, position = _buffer(body, position + 4)
            yield from _of_transaction(part_kind, part)


def _int(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 4], "big", signed=True)


def _buffer(data: bytes, position: int) -> tuple[bytes, int]:
    """Length and bytes; a length of -1 is null."""
    length = max(0, _int(data, position))
    begin = position + 4
    return data[begin : begin + length], begin + length
