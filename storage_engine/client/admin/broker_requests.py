"""Sends requests that every live broker answers.

After a lost or retriable answer the same request is sent again, until the cluster's deadline.
"""

from typing import Protocol, TypeVar

from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.spec import ApiSpec, Req


class Coded(Protocol):
    """An answer with an error code."""

    @property
    def error_code(self) -> int: ...


CodedT = TypeVar("CodedT", bound=Coded)


def ask_each_broker(
    cluster: Cluster, what: str, spec: ApiSpec[Req, CodedT], message: Req
) -> list[tuple[int, CodedT]]:
    """Every live broker's id and its answer, by id; `what` names the answer, for the error of a
    broker that gives none in time."""
    return [
        (
            broker_id,
            _answer_of(cluster, f"{what} of broker {broker_id}", broker_id, spec, message),
        )
        for broker_id in sorted(cluster.metadata([]).brokers)
    ]


def _answer_of(
    cluster: Cluster, what: str, broker_id: int, spec: ApiSpec[Req, CodedT], message: Req
) -> CodedT:
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
