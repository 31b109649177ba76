"""Records of JSON from producers that know no typed batches: one batch becomes one batch."""

import gzip
import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import make_batch
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.records.record_batch import Codec, iter_headers, read_header
from storage_engine.protocol.records.record_encoder import iter_encoded
from storage_engine.protocol.records.record_headers import HEADERS_TYPE
from storage_engine.protocol.typed.directory import read_directory
from storage_engine.protocol.typed.typed_batch import directory_of, is_typed
from storage_engine.protocol.typed.typed_decoder import iter_typed_decoded, plan
from storage_engine.tests.broker.support import cluster_fixture
from storage_engine.tests.broker.typed_topics.typed_support import (
    DDL,
    SCHEMA,
    TRIPS,
    create_typed,
    fetched,
    produce,
    produced,
    reason,
    topic_id_of,
    typed_batch,
)

cluster = cluster_fixture(brokers=1, prepare=create_typed, default_replication_factor="1")


def json_batch(*rows: Any, keys: Any = None, **named: Any) -> bytearray:
    """One batch of records; rows are bytes, None, or become JSON."""
    values = [row if isinstance(row, bytes | None) else json.dumps(row).encode() for row in rows]
    columns = [None if each is None else pa.array(each, pa.binary()) for each in (values, keys)]
    if "headers" in named:
        named["headers"] = pa.array(named["headers"], HEADERS_TYPE)
    (batch,) = iter_encoded(*columns, **named)
    return bytearray(batch.data)


def row(number: int) -> dict[str, Any]:
    return {"id": number, "fare": number / 2, "tag": "a"}


def stored(cluster: SimulatedCluster, tp: TopicPartition = TRIPS) -> bytes:
    return bytes(fetched(cluster, tp=tp, replica=1).records)


def rows_of(records: bytes, schema=SCHEMA) -> list[dict[str, Any]]:
    found = []
    for rows in iter_typed_decoded(records, plan(schema), framed=False, topic_schema=schema):
        found += rows.batch.to_pylist()
    return found


def test_one_batch_becomes_one_typed_batch_with_all_that_its_producer_counts(cluster):
    batch = json_batch(
        *map(row, range(50)), compression="gzip", producer_id=7, producer_epoch=0, base_sequence=0,
        headers=[[("h", b"v")]] * 50, now_ms=12_345,
    )  # fmt: skip
    answer = produced(cluster, batch)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    records = stored(cluster)
    ((_, header),) = iter_headers(records)
    sent = read_header(batch)
    assert is_typed(header)
    for name in (
        "records_count", "last_offset_delta", "base_sequence", "producer_id", "producer_epoch",
        "base_timestamp", "max_timestamp",
    ):  # fmt: skip
        assert getattr(header, name) == getattr(sent, name), name
    assert rows_of(records) == [row(n) for n in range(50)]
    reading = plan(SCHEMA, ["id"], ["_headers"])
    (rows,) = iter_typed_decoded(records, reading, framed=False, topic_schema=SCHEMA)
    assert rows.batch.column("_headers").to_pylist() == [[{"key": "h", "value": b"v"}]] * 50


def test_a_retry_is_a_duplicate_although_it_is_converted_again(cluster):
    batch = json_batch(row(1), row(2), producer_id=7, producer_epoch=0, base_sequence=0)
    assert produced(cluster, batch).base_offset == 0
    again = produced(cluster, batch)
    assert (again.error_code, again.base_offset) == (0, 0)
    later = json_batch(row(3), producer_id=7, producer_epoch=0, base_sequence=2)
    assert produced(cluster, later).base_offset == 2
    gap = json_batch(row(9), producer_id=7, producer_epoch=0, base_sequence=9)
    assert produced(cluster, gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [each["id"] for each in rows_of(stored(cluster))] == [1, 2, 3]


def test_a_record_that_does_not_fit_is_named_and_its_batch_is_not_taken(cluster):
    for rows, keys, place, words in (
        ([row(1), row(2), {"id": "x"}], None, 2, "id"),
        ([row(1), {"fare": 1.5}], None, 1, "id"),
        ([b"not json"], None, 0, ""),
        ([row(1), row(2)], [b"1", b"7"], 1, "key"),
        ([row(1), None], None, 1, ""),
    ):
        answer = produced(cluster, json_batch(*rows, keys=keys))
        assert answer.error_code == ErrorCode.INVALID_RECORD, rows
        assert words in reason(answer)
        assert [at for at, _ in answer.record_errors] == [place]
    assert not stored(cluster)


def test_what_is_no_batch_of_records_is_refused_and_not_sent_again_for_ever(cluster):
    answer = produced(cluster, make_batch(2, payload=b"rubbish"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    bomb = gzip.compress(bytes(65 << 20))
    answer = produced(cluster, make_batch(1, payload=bomb, attributes=Codec.GZIP))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert not stored(cluster)


def test_a_batch_that_is_too_large_as_columns_is_refused_and_never_split(cluster):
    create_typed(cluster, "narrow", max_message_bytes="900", compression_type="uncompressed")
    narrow = TopicPartition("narrow", 0)
    batch = json_batch(*({"id": n} for n in range(100)), compression="gzip")
    assert len(batch) < 900
    answer = produced(cluster, batch, tp=narrow)
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "columns" in reason(answer)
    assert not stored(cluster, narrow)


@pytest.mark.parametrize(
    ("setting", "codec"),
    [("producer", 3), ("uncompressed", 0), ("zstd", 4), ("gzip", 4), ("snappy", 3), ("lz4", 3)],
)
def test_the_topic_decides_how_columns_are_compressed(cluster, setting, codec):
    create_typed(cluster, "coded", compression_type=setting)
    coded = TopicPartition("coded", 0)
    batch = json_batch(*({"id": n, "tag": "a" * 100} for n in range(500)))
    assert produced(cluster, batch, tp=coded).error_code == 0
    records = stored(cluster, coded)
    directory = directory_of(read_header(records), records)
    assert {entry.codec for entry in directory.entries} == {codec}


def test_order_is_kept_however_long_each_batch_takes(cluster):
    topic_id = topic_id_of(cluster)
    held = cluster[1].loop.held = []
    answers = [
        produce(cluster, json_batch(row(1), row(2)), acks=1),
        produce(cluster, typed_batch(topic_id, 3, 2), acks=1),
        produce(cluster, json_batch(row(5)), acks=1),
    ]
    cluster.loop.run_for(100)
    assert len(held) == 2
    assert not any(answers)
    held.reverse()
    cluster[1].loop.release()
    bases = [cluster.answer(each).partitions[0].base_offset for each in answers]
    assert bases == [0, 2, 4]
    assert [each["id"] for each in rows_of(stored(cluster))] == [1, 2, 3, 4, 5]


def test_both_kinds_in_one_request_are_appended_and_one_bad_partition_spoils_no_other(cluster):
    create_typed(cluster, "other")
    other = TopicPartition("other", 0)
    other_batch = typed_batch(topic_id_of(cluster, other), 0, 2)
    request = ProduceRequest(
        None,
        1,
        30_000,
        [
            ProducePartition("trips", 0, memoryview(json_batch(row(1)))),
            ProducePartition("other", 0, memoryview(other_batch)),
        ],
    )
    for version in (3, 8, 9, 11):
        answer = cluster.answer(cluster.ask(1, PRODUCE, version, request))
        assert [each.error_code for each in answer.partitions] == [0, 0]
    refused = ProducePartition("trips", 0, memoryview(json_batch({"id": None})))
    request = request._replace(partitions=[refused, request.partitions[1]])
    bad, good = cluster.answer(cluster.ask(1, PRODUCE, 9, request)).partitions
    assert (bad.error_code, good.error_code) == (ErrorCode.INVALID_RECORD, 0)
    both = json_batch(row(1)) + typed_batch(topic_id_of(cluster), 2, 1)
    assert produced(cluster, both).error_code == 0
    assert [each["id"] for each in rows_of(stored(cluster))][-2:] == [1, 2]


def test_a_schema_that_changes_meanwhile_has_the_batch_prepared_anew(cluster):
    evolved = SCHEMA.evolved(parse_ddl(f"{DDL}, more INT"))
    cluster[1].loop.held = []
    answers = produce(cluster, json_batch({**row(1), "more": 5}), acks=1)
    cluster.loop.run_for(100)
    partition = cluster[1].replicas.get(TRIPS)
    partition.log.update_config(replace(partition.log.config, schema=evolved))
    cluster[1].loop.release()
    assert cluster.answer(answers).partitions[0].error_code == 0
    records = stored(cluster)
    assert read_directory(records[61:]).schema_version == 2
    assert rows_of(records, evolved) == [{**row(1), "more": 5}]


def test_leadership_that_changes_while_a_batch_is_converted_refuses_it(cluster):
    cluster[1].loop.held = []
    answers = produce(cluster, json_batch(row(1)), acks=1)
    cluster.loop.run_for(100)
    cluster[1].replicas.get(TRIPS).become_follower(2)
    cluster[1].loop.release()
    code = cluster.answer(answers).partitions[0].error_code
    assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster[1].replicas.get(TRIPS).log.log_end_offset == 0


def test_a_broker_that_is_killed_while_batches_are_converted_has_stored_none_of_them(cluster):
    batch = json_batch(row(1), producer_id=7, producer_epoch=0, base_sequence=0)
    cluster[1].loop.held = []
    answers = produce(cluster, batch)
    cluster.loop.run_for(100)
    loop = cluster[1].loop
    cluster[1].kill(session_ends_at_once=True)
    loop.release()
    cluster.loop.run_for(100)
    assert not any(hasattr(answer, "partitions") for answer in answers)
    cluster[1].start()
    cluster.wait_in_sync(TRIPS, 1)
    for _ in range(50):
        answer = produced(cluster, batch)
        if not answer.error_code:
            break
        cluster.loop.run_for(100)
    assert answer.base_offset == 0
    assert produced(cluster, batch).base_offset == 0
    assert [each["id"] for each in rows_of(stored(cluster))] == [1]


def test_a_tombstone_needs_a_key_and_a_compacted_typed_topic_takes_it(cluster):
    create_typed(cluster, "kept", cleanup_policy="compact")
    kept = TopicPartition("kept", 0)
    assert produced(cluster, json_batch(row(1), None, keys=[b"1", b"1"]), tp=kept).error_code == 0
    assert produced(cluster, typed_batch(topic_id_of(cluster, kept), 2, 1), tp=kept).error_code == 0
    assert [each["id"] for each in rows_of(stored(cluster, kept))] == [1, 2]


def test_the_time_of_the_append_is_that_of_converted_rows(cluster):
    create_typed(cluster, "stamped", message_timestamp_type="LogAppendTime")
    stamped = TopicPartition("stamped", 0)
    answer = produced(cluster, json_batch(row(1)), tp=stamped)
    header = read_header(stored(cluster, stamped))
    assert header.max_timestamp == answer.log_append_time_ms > 0


def test_a_batch_sent_again_is_known_though_it_does_not_fit_the_schema_any_more(cluster):
    """Its producer did not get the answer, and a column was hidden meanwhile."""
    batch = json_batch(row(1), producer_id=7, producer_epoch=0, base_sequence=0)
    assert produced(cluster, bytearray(batch)).base_offset == 0
    partition = cluster[1].replicas.get(TRIPS)
    hidden = SCHEMA.evolved(parse_ddl("id BIGINT NOT NULL, fare DOUBLE"))
    partition.log.update_config(replace(partition.log.config, schema=hidden))
    again = produced(cluster, bytearray(batch))
    assert (again.error_code, again.base_offset) == (0, 0)
    later = json_batch(row(1), producer_id=7, producer_epoch=0, base_sequence=1)
    assert produced(cluster, later).error_code == ErrorCode.INVALID_RECORD
    assert partition.log.log_end_offset == 1


@pytest.mark.parametrize(
    "misfit",
    [
        {"n" * 60_000: 1},
        {"m": {"k" * 60_000: "x"}},
        {"m": {"\x01" * 9_000: "x"}},
        {"id": "ü" * 30_000},
    ],
)
@pytest.mark.parametrize("version", [7, 8, 9])
def test_a_long_name_that_does_not_fit_is_told_shortened(cluster, misfit, version):
    """A string of the protocol has at most 32,767 bytes: nobody would be answered."""
    schema = new_schema(parse_ddl("id BIGINT, m MAP<STRING, INT>"))
    create_typed(cluster, "mapped", schema)
    answer = produced(cluster, json_batch(misfit), tp=TopicPartition("mapped", 0), version=version)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    for text in (answer.error_message or "", *(text for _, text in answer.record_errors)):
        assert len(text) < 400
