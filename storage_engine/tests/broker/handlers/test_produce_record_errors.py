"""Produce names the records for which it refuses a batch (KIP-467)."""

import pyarrow as pa
import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.protocol.records.record_keys import NAMED_MAX
from storage_engine.tests.broker.support import cluster_fixture

cluster = cluster_fixture(
    brokers=1,
    prepare=lambda made: made.create_topic("compacted", partitions=2, cleanup_policy="compact"),
    default_replication_factor="1",
)


def batch_of(keys: list[bytes | None], compression: str) -> memoryview:
    (batch,) = encode_batches(
        pa.array([b"v"] * len(keys)), pa.array(keys, pa.binary()), compression=compression
    )
    return batch.data


def produced(cluster, *batches: memoryview):
    partitions = [ProducePartition("compacted", at, batch) for at, batch in enumerate(batches)]
    request = ProduceRequest(None, -1, 10_000, partitions)
    return cluster.answer(cluster.ask(1, PRODUCE, 8, request)).partitions


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("count", [20, 100])
def test_the_records_without_a_key_are_named_and_none_of_the_batch_is_stored(
    cluster, compression, count
):
    keys = [b"k" if number % 10 else None for number in range(count)]
    bad, good = produced(cluster, batch_of(keys, compression), batch_of([b"k"], compression))
    assert (bad.error_code, good.error_code) == (ErrorCode.INVALID_RECORD, ErrorCode.NONE)
    assert [place for place, _ in bad.record_errors] == list(range(0, count, 10))
    assert {"no key" in (reason or "") for _, reason in bad.record_errors} == {True}
    assert f"{count // 10} of {count} records" in (bad.error_message or "")
    (next_one, _) = produced(cluster, *[batch_of([b"k"], compression)] * 2)
    assert next_one.base_offset == 0


def test_an_answer_names_a_limited_number_over_all_its_partitions(cluster):
    count = NAMED_MAX - 100
    answers = produced(cluster, *[batch_of([None] * count, "none")] * 2)
    assert {answer.error_code for answer in answers} == {ErrorCode.INVALID_RECORD}
    assert [len(answer.record_errors) for answer in answers] == [count, 100]
