"""How those who look after a cluster ask its coordinators and its brokers.

Rule: a lost or retriable answer is followed by the same request, at whoever coordinates by then,
until the cluster's deadline. What goes to the controller is in `admin`.
"""

from collections.abc import Callable
from typing import Any

from storage_engine.client.cluster import Cluster
from storage_engine.client.coordinator_lookup import GROUP, find_coordinator
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.spec import AnyApi

CodeOf = Callable[[Any], int]
"""The error code that counts of an answer, 0 for none."""

_NAMES = {GROUP: "group"}


def ask_coordinator(
    cluster: Cluster,
    kind: int,
    key: str,
    spec: AnyApi,
    message: Any,
    code_of: CodeOf,
    *,
    version: int | None = None,
) -> tuple[int, Any]:
    """The coordinator of a group or transactional id (`kind`: see `coordinator_lookup`) and its
    answer; KafkaError when it is a final no."""
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


def ask_each_broker(
    cluster: Cluster, what: str, spec: AnyApi, message: Any
) -> list[tuple[int, Any]]:
    """Every live broker's id and its answer, by id; `what` they tell goes into the error of one
    that does not in time."""
    return [
        (broker_id, _until_told(cluster, f"{what} of broker {broker_id}", broker_id, spec, message))
        for broker_id in sorted(cluster.metadata([]).brokers)
    ]


def _until_told(cluster: Cluster, what: str, broker_id: int, spec: AnyApi, message: Any) -> Any:
    retry = Retry(what, Deadline.after(cluster.deadline_ms))
    while True:
        failure: HeadraceError
        try:
            answer = cluster.request(broker_id, spec, message)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                return answer
            failure = KafkaError(f"{what}: {code.meaning}", code)
        except (KafkaError, DeadlineExceededError) as error:
            failure = error
        retry.pause(failure)
