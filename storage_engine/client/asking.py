"""Asks one broker, such as a coordinator, until it answers without a retriable error.

A remembered coordinator is a guess, which a failed request forgets. Source: KIP-98.
"""

from collections.abc import Callable

from storage_engine.client.cluster import Cluster, no_error
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages.find_coordinator import API as FIND_COORDINATOR
from storage_engine.protocol.messages.find_coordinator import FindCoordinatorRequest

_FIND_VERSION = 3
"""The newest version for one name at a time."""

GROUP = 0
TRANSACTION = 1

_NAMES = {GROUP: "group", TRANSACTION: "transactional id"}

MAX_REMEMBERED = 64
"""A process writes to few sinks at a time; batch writes have a new one each."""

_BUSY = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.BATCH_IDS_CHANGED})
"""Errors of the right coordinator, which waits for something else."""


def error_from(code: int, text: str | None = None, *, what: str = "") -> KafkaError | None:
    """The error that an answer tells about `what`; None where it tells none."""
    if not code:
        return None
    known = ErrorCode.of(code)
    text = text or known.meaning
    return KafkaError(f"{what}: {text}" if what else text, known)


def ask_until_done(
    cluster: Cluster,
    spec: ApiSpec[Req, Resp],
    message: Req,
    find: Callable[[Deadline], int],
    error_of: Callable[[Resp], KafkaError | None] = no_error,
    *,
    what: str,
    version: int | None = None,
    deadline_ms: int | None = None,
    on_failure: Callable[[HeadraceError], None] = no_error,
) -> tuple[int, Resp]:
    """The broker that `find` names, and its answer. After a lost or retriable one the same request
    is sent again, until the deadline; any other error is raised. `what` is asked for."""
    deadline = Deadline.after(deadline_ms or cluster.deadline_ms)
    retry = Retry(what, deadline)
    while True:
        failure: HeadraceError | None
        try:
            broker_id = find(deadline)
            timeout_ms = max(1, min(deadline.left_ms, cluster.request_timeout_ms))
            answer = cluster.request(
                broker_id, spec, message, version=version, timeout_ms=timeout_ms
            )
            failure = error_of(answer)
            if failure is None:
                return broker_id, answer
        except (KafkaError, DeadlineExceededError) as error:
            failure = error
        on_failure(failure)
        retry.pause(failure)


def ask_coordinator(
    cluster: Cluster,
    kind: int,
    key: str,
    spec: ApiSpec[Req, Resp],
    message: Req,
    error_of: Callable[[Resp], KafkaError | None],
    *,
    what: str = "",
    version: int | None = None,
    deadline_ms: int | None = None,
) -> tuple[int, Resp]:
    """The coordinator of a group or transactional id (by its `kind`) and its answer."""
    what = what or f"{_NAMES[kind]} '{key}'"

    def find(deadline: Deadline) -> int:
        known = cluster.coordinators
        found = known.get((kind, key))
        if found is None:
            found = find_coordinator(cluster, kind, key, what, deadline)
            if len(known) >= MAX_REMEMBERED:
                known.pop(next(iter(known)))
            known[kind, key] = found
        return found

    def forget(failure: HeadraceError) -> None:
        if not (isinstance(failure, KafkaError) and failure.code in _BUSY):
            cluster.coordinators.pop((kind, key), None)

    return ask_until_done(
        cluster,
        spec,
        message,
        find,
        error_of,
        what=f"{spec.name} of {what}",
        version=version,
        deadline_ms=deadline_ms,
        on_failure=forget,
    )


def find_coordinator(cluster: Cluster, kind: int, key: str, what: str, deadline: Deadline) -> int:
    """Asks any broker for the id of the coordinator. Raises KafkaError, which names `what`, when
    there is none now."""
    message = FindCoordinatorRequest(key=key, key_type=kind)
    answer = cluster.ask_any(FIND_COORDINATOR, message, deadline, version=_FIND_VERSION)
    what = f"there is no coordinator for {what}"
    if (error := error_from(answer.error_code, answer.error_message, what=what)) is not None:
        raise error
    return int(answer.node_id)
