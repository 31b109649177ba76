"""kazoo's results and exceptions as `ZkReply`. Any result that is not a clear answer is UNKNOWN."""

from collections.abc import Sequence

from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperError,
)
from kazoo.protocol.states import ZnodeStat

from storage_engine.core.ports import ZkReply, ZkStat, ZkStatus

UNKNOWN = ZkReply(status=ZkStatus.UNKNOWN)
ILLEGAL = ZkReply(status=ZkStatus.ILLEGAL)

_STATUS: tuple[tuple[type[Exception], ZkStatus], ...] = (
    (NoNodeError, ZkStatus.NO_NODE),
    (NodeExistsError, ZkStatus.NODE_EXISTS),
    (BadVersionError, ZkStatus.BAD_VERSION),
    (NotEmptyError, ZkStatus.NOT_EMPTY),
    # The path of a creation has characters that ZooKeeper refuses.
    (BadArgumentsError, ZkStatus.ILLEGAL),
)
_NO_ANSWER = (
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
_NOT_TO_BLAME = (RolledBackError, RuntimeInconsistency)
"""The results in a multi of the operations before and after the one that failed."""


def is_answer(error: Exception) -> bool:
    """Return True when the server sent this error on a live session."""
    return isinstance(error, ZookeeperError) and not isinstance(error, _NO_ANSWER)


def from_error(error: Exception) -> ZkReply:
    return ZkReply(status=_status(error))


def from_get(result: tuple[bytes | None, ZnodeStat]) -> ZkReply:
    data, stat = result
    # A node made by another program may have no data at all: null, not empty.
    return ZkReply(status=ZkStatus.OK, data=bytes(data or b""), stat=_stat(stat))


def from_children(result: tuple[Sequence[str], ZnodeStat]) -> ZkReply:
    children, stat = result
    return ZkReply(status=ZkStatus.OK, children=sorted(children), stat=_stat(stat))


def from_exists(result: ZnodeStat | None) -> ZkReply:
    if result is None:
        return ZkReply(status=ZkStatus.NO_NODE)
    return ZkReply(status=ZkStatus.OK, stat=_stat(result))


def from_create(result: tuple[str, ZnodeStat]) -> ZkReply:
    path, stat = result
    return ZkReply(status=ZkStatus.OK, path=path, stat=_stat(stat))


def from_set(result: ZnodeStat) -> ZkReply:
    return ZkReply(status=ZkStatus.OK, stat=_stat(result))


def from_delete(_result: bool) -> ZkReply:
    return ZkReply(status=ZkStatus.OK)


def from_multi(results: Sequence[str | bool | ZnodeStat | Exception]) -> ZkReply:
    """Return the reply to a commit; kazoo returns the failures in the list of results."""
    failures = [(index, item) for index, item in enumerate(results) if isinstance(item, Exception)]
    for index, failure in failures:
        if not isinstance(failure, _NOT_TO_BLAME):
            return ZkReply(status=_status(failure), failed=index)
    if failures:
        return UNKNOWN
    return ZkReply(status=ZkStatus.OK)


def _status(error: Exception) -> ZkStatus:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), ZkStatus.UNKNOWN)


def _stat(stat: ZnodeStat) -> ZkStat:
    return ZkStat(
        version=stat.version,
        czxid=stat.czxid,
        ephemeral_owner=stat.ephemeralOwner or 0,
        mzxid=stat.mzxid,
    )
