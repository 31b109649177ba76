"""One read of the partitions of a fetch: how much it takes of each, and what it refuses."""

import pytest

from simulation.world.requests import fetch_request
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.fetch import API
from storage_engine.tests.broker.support import cluster_fixture

LONG_MS = 60_000
SOON_MS = 100


def fill(cluster) -> None:
    """Two batches in each of two partitions."""
    assert cluster.create_topic("t", 2).error_code == 0
    for number in range(2):
        tp = TopicPartition("t", number)
        assert cluster.produced_when_there(tp, b"first") == 0
        assert cluster.produced(tp, b"second") == 1


cluster = cluster_fixture(brokers=1, prepare=fill, default_replication_factor="1")


def read(cluster, *wanted: dict[str, int], max_bytes: int = 1 << 20):
    """The partitions of the answer to a fetch that may wait for long, and does not."""
    request = fetch_request("t", 0, 0, wait_ms=LONG_MS)
    (first,) = request.partitions
    partitions = [first._replace(**each) for each in wanted]
    asked = request._replace(partitions=partitions, max_bytes=max_bytes)
    return cluster.answer(cluster.ask(1, API, 12, asked), limit_ms=SOON_MS).partitions


def texts(partitions) -> list[list[bytes]]:
    found = [bytes(each.records or b"") for each in partitions]
    return [[text for text in (b"first", b"second") if text in each] for each in found]


BOTH = ({"partition": 0}, {"partition": 1})


@pytest.mark.parametrize(
    ("limits", "max_bytes", "expected"),
    [
        ({}, 1 << 20, [[b"first", b"second"]] * 2),
        ({}, 1, [[b"first"], []]),
        ({}, 0, [[b"first"], []]),
        ({"partition_max_bytes": 1}, 1 << 20, [[b"first"], []]),
        ({"partition_max_bytes": 100}, 1 << 20, [[b"first"], [b"first"]]),
        ({}, 250, [[b"first", b"second"], [b"first"]]),
    ],
)
def test_only_the_first_batch_of_an_answer_may_be_above_a_limit(
    cluster, limits, max_bytes, expected
):
    answered = read(cluster, *(each | limits for each in BOTH), max_bytes=max_bytes)
    assert texts(answered) == expected


def test_a_partition_without_news_takes_no_room_of_the_next(cluster):
    assert texts(read(cluster, {"fetch_offset": 2}, {"partition": 1}, max_bytes=1)) == [
        [],
        [b"first"],
    ]


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"partition": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"fetch_offset": 3}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"fetch_offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"current_leader_epoch": 100}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_refusal_is_told_at_once_and_leaves_the_other_partitions_their_records(
    cluster, wanted, code
):
    refused, other = read(cluster, {"fetch_offset": 2} | wanted, {"partition": 1})
    assert ErrorCode.of(refused.error_code) is code
    assert texts([refused, other]) == [[], [b"first", b"second"]]
    (alone,) = read(cluster, {"fetch_offset": 2} | wanted)
    assert alone.error_code == code
    bounds = (alone.high_watermark, alone.log_start_offset)
    assert bounds == ((2, 0) if code is ErrorCode.OFFSET_OUT_OF_RANGE else (-1, -1))
