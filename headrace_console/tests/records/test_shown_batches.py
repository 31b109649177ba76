"""Record batches as they are stored, in words; and single records with their batch."""

from typing import Any

import pyarrow as pa
import pytest

from headrace_console.problem import ConsoleError
from headrace_console.records import shown_batches
from headrace_console.records.shown_batches import (
    batches,
    described_batch,
    one_message,
    raw_part,
)
from headrace_console.tests.records.appended import append
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.records.record_batch import read_header
from storage_engine.protocol.records.record_encoder import encode_batches

TP = TopicPartition("t", 0)


def described(data, *, unpacks=True):
    batch = memoryview(bytes(data))
    return described_batch(TP, batch, read_header(batch), unpacks=unpacks)


def encoded(*values, compression="none"):
    (batch,) = encode_batches(pa.array(values, pa.binary()), compression=compression)
    return bytearray(batch.data)


def test_a_compressed_batch_tells_its_codec_and_what_it_saves():
    document = described(encoded(b"x" * 10_000, b"y" * 10_000, compression="zstd"))
    assert document["codec"] == "zstd" and document["uncompressed_bytes"] > 20_000
    assert document["words"].startswith("2 records; compressed together by zstd to 1/")
    assert described(encoded(b"v"))["words"] == "1 record; not compressed."
    assert described(encoded(b"v" * 999, compression="lz4"), unpacks=False)["words"] == (
        "1 record; compressed by lz4."
    )


def test_a_damaged_batch_says_so_and_is_described_by_its_header():
    batch = encoded(b"x" * 1_000, compression="lz4")
    batch[-20] ^= 1
    document = described(batch)
    assert not document["crc_ok"] and document["records"] == 1
    assert document["words"].endswith("Its checksum is wrong: the bytes are damaged.")


@pytest.fixture
def topic(fake):
    """Batches of offsets 0 to 1, 2 to 3, …"""
    fake.add_topic("t", [1])
    for number in range(5):
        append(fake, b"%d" % number, b"second")
    return fake


def listed(cluster, start, limit):
    document: Any = batches(cluster, TP, start, limit, topic_is_typed=False)
    return [row["base_offset"] for row in document["rows"]], document["next"]


@pytest.mark.usefixtures("topic")
def test_lists_go_on_where_the_last_one_ended(cluster):
    assert listed(cluster, "newest", 2) == ([6, 8], None)
    assert listed(cluster, "offset:0", 2) == ([0, 2], {"from": "offset:4"})
    assert listed(cluster, "offset:4", 9) == ([4, 6, 8], None)


@pytest.mark.parametrize("start", ["earliest", "offset:", "offset:-1", "offset:x"])
@pytest.mark.usefixtures("topic")
def test_another_start_is_refused(cluster, start):
    with pytest.raises(ConsoleError, match="'from' must be newest or offset:N"):
        listed(cluster, start, 1)


@pytest.mark.usefixtures("topic")
def test_a_record_in_the_middle_of_a_batch_is_shown_with_its_batch(cluster):
    document: Any = one_message(cluster, TP, 5, None)
    assert (document["offset"], document["value"]["text"]) == (5, "second")
    assert document["batch"]["base_offset"] == 4
    assert raw_part(cluster, TP, 4, "value") == b"2"
    with pytest.raises(ConsoleError, match="the key of this message is null"):
        raw_part(cluster, TP, 4, "key")


def test_a_value_too_large_for_a_browser_is_refused_with_the_command_that_reads_it(
    topic, cluster, monkeypatch
):
    monkeypatch.setattr(shown_batches, "MOST_RAW_BYTES", 5)
    with pytest.raises(ConsoleError, match="has 6 bytes; read it with headrace consume"):
        raw_part(cluster, TP, 1, "value")
