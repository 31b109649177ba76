"""ListOffsets: which partitions and timestamps it takes, and where it searches."""

import pyarrow as pa

from simulation.world.requests import produce_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.log.segments import time_search
from storage_engine.protocol.apis import list_offsets
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.records.record_encoder import iter_encoded
from storage_engine.tests.broker.support import cluster_fixture

TP = TopicPartition("t", 0)


cluster = cluster_fixture("t", brokers=1, has_record=True, default_replication_factor="1")


def test_list_offsets_refuses_a_partition_that_is_named_twice(cluster):
    wanted = [ListOffsetsPartition("t", 0, -1)] * 3 + [ListOffsetsPartition("t", 1, -1)]
    answer = cluster.answer(cluster.ask(1, list_offsets.API, 5, ListOffsetsRequest(wanted)))
    codes = [each.error_code for each in answer.partitions]
    assert codes[:3] == [ErrorCode.INVALID_REQUEST] * 3
    assert codes[3] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def compressed_batch(count: int) -> memoryview:
    values = pa.array([bytes(1000)] * count, pa.binary())
    times = pa.array(list(range(1_000, 1_000 + count)), pa.int64())
    (encoded,) = iter_encoded(values, None, None, times, compression="zstd", batch_bytes=1 << 30)
    return memoryview(bytearray(encoded.data))


def test_a_search_by_time_decompresses_beside_the_loop(cluster, monkeypatch):
    produced = produce_request("t", 0, compressed_batch(100), acks=-1)
    assert cluster.answer(cluster.ask(1, PRODUCE, 8, produced)).partitions[0].error_code == 0
    beside: list[bool] = []
    is_beside = False
    submit = cluster.loop.submit

    def submitted(work, *rest):
        def marked():
            nonlocal is_beside
            is_beside = True
            try:
                return work()
            finally:
                is_beside = False

        submit(marked, *rest)

    look = time_search._times_within_batch

    def looked(*arguments):
        beside.append(is_beside)
        return look(*arguments)

    monkeypatch.setattr(cluster.loop, "submit", submitted)
    monkeypatch.setattr(time_search, "_times_within_batch", looked)
    request = ListOffsetsRequest([ListOffsetsPartition("t", 0, 1_050)])
    answer = cluster.answer(cluster.ask(1, list_offsets.API, 5, request))
    assert (answer.partitions[0].offset, answer.partitions[0].timestamp) == (51, 1_050)
    assert beside == [True]


def test_a_search_whose_partition_is_led_by_another_when_it_ends_says_so(cluster):
    produced = produce_request("t", 0, compressed_batch(100), acks=-1)
    assert cluster.answer(cluster.ask(1, PRODUCE, 8, produced)).partitions[0].error_code == 0
    request = ListOffsetsRequest([ListOffsetsPartition("t", 0, 1_050)])
    cluster[1].loop.held = []
    answers = cluster.ask(1, list_offsets.API, 5, request)
    cluster.loop.run_for(10)
    assert not answers
    partition = cluster[1].replicas.get(TP)
    assert partition is not None
    partition.leader_epoch += 1
    cluster[1].loop.release()
    code = cluster.answer(answers).partitions[0].error_code
    assert code == ErrorCode.FENCED_LEADER_EPOCH


def offset(cluster, timestamp, version=11):
    request = ListOffsetsRequest([ListOffsetsPartition("t", 0, timestamp)])
    leader = cluster.state(TP).leader
    (row,) = cluster.answer(cluster.ask(leader, list_offsets.API, version, request)).partitions
    return row.error_code, row.offset


def test_all_of_the_log_is_local(cluster):
    assert offset(cluster, list_offsets.EARLIEST_LOCAL_TIMESTAMP) == (0, 0)
    assert offset(cluster, list_offsets.LATEST_TIERED_TIMESTAMP) == (0, -1)
    assert offset(cluster, list_offsets.EARLIEST_PENDING_UPLOAD_TIMESTAMP) == (0, -1)
    assert offset(cluster, list_offsets.EARLIEST_LOCAL_TIMESTAMP, version=8) == (0, 0)
    refused = (ErrorCode.UNSUPPORTED_VERSION, -1)
    assert offset(cluster, list_offsets.EARLIEST_LOCAL_TIMESTAMP, version=7) == refused
    assert offset(cluster, list_offsets.EARLIEST_PENDING_UPLOAD_TIMESTAMP, version=10) == refused
    assert offset(cluster, -7) == refused
