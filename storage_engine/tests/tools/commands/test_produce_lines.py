"""`headrace produce`: how lines become batches, without a broker."""

import contextlib
import fcntl
import os
import resource
import threading
from typing import Any

import pyarrow as pa
import pytest

from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import EncodedBatch
from storage_engine.tools.commands.produce import CHUNK_BYTES, LineSender, read_lines
from storage_engine.tools.errors import CommandError


class RecordingWriter:
    """Stands in for the client's writer: remembers what it is given."""

    def __init__(self) -> None:
        self.batches: list[tuple[TopicPartition, EncodedBatch]] = []

    def append(self, tp: TopicPartition, batch: EncodedBatch, *, done: Any) -> None:
        self.batches.append((tp, batch))

    def values(self) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {}
        for tp, batch in self.batches:
            found.setdefault(tp.partition, []).extend(decode_batches(batch.data).values.to_pylist())
        return found


def _sender(writer: RecordingWriter, **changes: Any) -> LineSender:
    settings = {
        "topic": "t",
        "partition_count": 3,
        "separator": None,
        "compression": "none",
        "batch_bytes": 1 << 20,
        **changes,
    }
    return LineSender(writer, **settings)  # type: ignore[arg-type]


def _lines(*lines: bytes) -> Any:
    return pa.array(lines, pa.binary())


def test_chunks_without_keys_take_the_partitions_in_turn() -> None:
    writer = RecordingWriter()
    sender = _sender(writer)
    for i in range(4):
        sender.send(_lines(b"%d" % i))
    assert writer.values() == {0: [b"0", b"3"], 1: [b"1"], 2: [b"2"]}
    assert sender.sent == 4


def test_a_key_goes_where_other_clients_send_it() -> None:
    # Of Kafka's own test for its partitioner: murmur2 of "foobar" is -790332482.
    writer = RecordingWriter()
    _sender(writer, separator=b":", partition_count=5).send(_lines(b"foobar:v"))
    assert writer.values() == {(-790332482 & 0x7FFFFFFF) % 5: [b"v"]}


def test_a_bad_line_is_named_after_the_good_ones_were_sent() -> None:
    writer = RecordingWriter()
    sender = _sender(writer, separator=b":", partition_count=1)
    sender.send(_lines(b"a:1", b"b:2"))
    with pytest.raises(CommandError, match="line 4 of the input has no key separator ':'"):
        sender.send(_lines(b"c:3", b"d", b"e:5"))
    assert writer.values() == {0: [b"1", b"2", b"3"]}


def test_batches_stay_below_the_limit_of_the_topic() -> None:
    writer = RecordingWriter()
    _sender(writer, batch_bytes=1000).send(_lines(*[b"x" * 90] * 100))
    assert len(writer.batches) > 9
    assert all(len(batch.data) <= 1000 for _, batch in writer.batches)


def _read(*pieces: bytes) -> list[bytes]:
    reader, writer = os.pipe()

    def feed() -> None:
        # Where the reader has failed, there is nobody to write to.
        with contextlib.suppress(BrokenPipeError), os.fdopen(writer, "wb") as file:
            for piece in pieces:
                file.write(piece)
                file.flush()

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        return [line for lines in read_lines(reader) for line in lines.to_pylist()]
    finally:
        os.close(reader)
        feeder.join()


def test_input_larger_than_a_chunk_comes_as_it_went() -> None:
    lines = [b"%d" % i * 50 for i in range(CHUNK_BYTES // 50)]
    assert _read(b"\n".join(lines)) == lines


def test_input_comes_by_a_descriptor_of_any_number() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= FIRST_ABOVE_SELECT + 1:
        pytest.skip("this process may have no such descriptor")
    reader, writer = os.pipe()
    high = fcntl.fcntl(reader, fcntl.F_DUPFD, FIRST_ABOVE_SELECT)
    try:
        os.write(writer, b"one\ntwo")
        os.close(writer)
        assert [line for lines in read_lines(high) for line in lines.to_pylist()] == [
            b"one",
            b"two",
        ]
    finally:
        os.close(high)
        os.close(reader)


FIRST_ABOVE_SELECT = 1024


def test_no_input_is_no_line() -> None:
    assert _read() == []
    assert _read(b"\n") == [b""]
