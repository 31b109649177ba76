"""Produces with acks=all that wait for followers: which end their wait has."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.tests.broker.support import cluster_fixture, code_of

TP = TopicPartition("t", 0)
LAG_MS = 2_000

cluster = cluster_fixture(
    "t", has_record=True, min_insync_replicas="2", replica_lag_time_max_ms=str(LAG_MS)
)


@pytest.fixture
def alone(cluster) -> int:
    """A leader that its followers can't reach."""
    leader = cluster.state(TP).leader
    for other in {1, 2, 3} - {leader}:
        cluster.network.cut(leader, other)
    return leader


def test_a_leader_that_is_left_alone_does_not_acknowledge_what_it_has_appended(cluster, alone):
    answers = cluster.produce(alone, TP, b"second")
    cluster.loop.run_for(LAG_MS // 2)
    assert not answers
    answer = cluster.answer(answers, limit_ms=3 * LAG_MS)
    assert code_of(answer) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert answer.partitions[0].base_offset == -1
    assert set(cluster.state(TP).isr) == {alone}
