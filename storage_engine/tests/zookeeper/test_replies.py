"""Results and exceptions of kazoo become the answers of ZooKeeper, or unknown outcomes."""

from types import SimpleNamespace

import pytest
from kazoo import exceptions

from storage_engine.core.ports import ZkReply, ZkStatus
from storage_engine.zookeeper.replies import from_error, from_get, from_multi, is_answer


@pytest.mark.parametrize(
    ("error", "status", "answered"),
    [
        (exceptions.NoNodeError(), ZkStatus.NO_NODE, True),
        (exceptions.BadArgumentsError(), ZkStatus.ILLEGAL, True),
        # Answers that are no outcome of the operation.
        (exceptions.NoAuthError(), ZkStatus.UNKNOWN, True),
        (exceptions.MarshallingError(), ZkStatus.UNKNOWN, True),
        # Whether the operation was done is not known.
        (exceptions.ConnectionLoss(), ZkStatus.UNKNOWN, False),
        (exceptions.SessionExpiredError(), ZkStatus.UNKNOWN, False),
        (exceptions.OperationTimeoutError(), ZkStatus.UNKNOWN, False),
        (OSError("of this process"), ZkStatus.UNKNOWN, False),
    ],
)
def test_only_a_clear_answer_is_no_unknown_outcome(error, status, answered):
    assert from_error(error) == ZkReply(status=status)
    assert is_answer(error) is answered


def test_a_multi_is_told_by_the_operation_that_failed_and_not_by_those_around_it():
    around = exceptions.RolledBackError(), exceptions.RuntimeInconsistency()
    failed = from_multi([around[0], exceptions.BadVersionError(), around[1]])
    assert failed == ZkReply(status=ZkStatus.BAD_VERSION, failed=1)
    assert from_multi(around).status is ZkStatus.UNKNOWN, "none of them is to blame"
    assert from_multi(["/path", True]) == ZkReply(status=ZkStatus.OK)


def test_a_node_without_data_is_read_as_empty():
    stat = SimpleNamespace(version=0, czxid=1, mzxid=1, ephemeralOwner=0)
    assert from_get((None, stat)).data == b""
