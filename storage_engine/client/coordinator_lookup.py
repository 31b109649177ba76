"""Finds the broker that coordinates a group or a transactional id, and sends requests to it.

A remembered coordinator is a guess: a caller that is refused by that broker must forget it. Source:
KIP-98.
"""

from collections.abc import Callable

from storage_engine.client.cluster import Cluster
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
"""The newest for one name at a time."""

GROUP = 0
TRANSACTION = 1

_NAMES = {GROUP: "group"}

MAX_REMEMBERED = 64
"""A process writes to few sinks at a time; batch writes have a new one each."""


def remembered_coordinator(
    cluster: Cluster, kind: int, key: str, what: str, deadline: Deadline
) -> int:
    """Like `find_coordinator`, but uses an earlier answer to anybody who shares this `cluster`."""
    known = cluster.coordinators
    found = known.get((kind, key))
    if found is None:
        found = find_coordinator(cluster, kind, key, what, deadline)
        if len(known) >= MAX_REMEMBERED:
            known.pop(next(iter(known)))
        known[kind, key] = found
    return found


def forget_coordinator(cluster: Cluster, kind: int, key: str) -> None:
    """Call this when the coordinator does not answer, or says that it is not the coordinator any
    more."""
    cluster.coordinators.pop((kind, key), None)


def find_coordinator(cluster: Cluster, kind: int, key: str, what: str, deadline: Deadline) -> int:
    """Asks any broker for the id of the coordinator. Raises KafkaError, which names `what`, when
    there is none now."""
    message = FindCoordinatorRequest(key=key, key_type=kind)
    answer = cluster.ask_any(FIND_COORDINATOR, message, deadline, version=_FIND_VERSION)
    code = ErrorCode.of(answer.error_code)
    if code is not ErrorCode.NONE:
        raise KafkaError(
            f"there is no coordinator for {what}: {answer.error_message or code.meaning}", code
        )
    return int(answer.node_id)


def ask_coordinator(
    cluster: Cluster,
    kind: int,
    key: str,
    spec: ApiSpec[Req, Resp],
    message: Req,
    code_of: Callable[[Resp], int],
    *,
    version: int | None = None,
) -> tuple[int, Resp]:
    """The coordinator of a group or transactional id (by its `kind`) and its
    answer; KafkaError when it is a final no. `code_of`: the error code of an answer, 0 for none."""
    what = f"{_NAMES.get(kind, 'transactional id')} '{key}'"
    deadline = Deadline.after(cluster.deadline_ms)
    retry = Retry(f"{spec.name} of {what}", deadline)
    while True:
        failure: HeadraceError
        try:
            coordinator = find_coordinator(cluster, kind, key, what, deadline)
            answer = cluster.request(coordinator, spec, message, version=version)
            code = ErrorCode.of(code_of(answer))
            if code is ErrorCode.NONE:
                return coordinator, answer
            failure = KafkaError(f"{what}: {code.meaning}", code)
        except (KafkaError, DeadlineExceededError) as error:
            failure = error
        retry.pause(failure)
