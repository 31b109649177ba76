"""A broker tells nobody where a log begins before that is written down (R-LOG9)."""

from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.handlers.test_delete_records import delete
from storage_engine.tests.broker.replicas.test_replica_failures_shortages import (
    TP,
    cluster,
    relieve,
    shorten,
)

__all__ = ["cluster"]


def test_deleted_records_are_answered_for_only_once_their_end_is_written_down(cluster):
    for number in range(8):
        cluster.produced(TP, bytes(900) + b"%d" % number)
    cluster.wait_in_sync(TP, 1, 2, 3)
    leader = cluster.state(TP).leader

    def delete_up_to_5() -> ErrorCode:
        return delete(cluster, 5)[0]

    shorten(cluster, leader)
    assert delete_up_to_5() is ErrorCode.KAFKA_STORAGE_ERROR
    # Again, when the start in memory has moved already.
    assert delete_up_to_5() is ErrorCode.KAFKA_STORAGE_ERROR
    relieve(cluster, leader)
    assert delete_up_to_5() is ErrorCode.NONE
    cluster[leader].kill(session_ends_at_once=True)
    cluster[leader].start()
    assert cluster[leader].logs.get(TP).log_start_offset == 5
