"""Sends the requests of administration: to the controller, to every broker, or to the leaders of
partitions, and to the next one when it has changed.

After a lost or retriable answer the same request is sent again, until the cluster's deadline; a
final error ends the call. So requests must be idempotent.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol, TypeVar

from storage_engine.client.asking import ask_until_done, error_from
from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry, pause_ms
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline, sleep_ms
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp


class Coded(Protocol):
    """An answer, or a row of one, with an error code."""

    @property
    def error_code(self) -> int: ...


class Told(Coded, Protocol):
    """An answer, or a row of one, with an error code and a message."""

    @property
    def error_message(self) -> str | None: ...


CodedT = TypeVar("CodedT", bound=Coded)
Answer = TypeVar("Answer")

Ask = Callable[[int, list[TopicPartition]], Iterable[tuple[TopicPartition, Answer | KafkaError]]]
"""Sends one request to a broker about some partitions."""


def error_of(answer: Told) -> KafkaError | None:
    """Return the error of an answer, or of a row of one; None without an error."""
    return error_from(answer.error_code, answer.error_message)


def first_error(rows: Iterable[Told]) -> KafkaError | None:
    """Return the error of the first row that has failed; None without one."""
    return next(filter(None, map(error_of, rows)), None)


def controller_of(cluster: Cluster, _deadline: Deadline | None = None) -> int:
    """Return the controller's id from fresh metadata; KafkaError while there is none."""
    view = cluster.metadata([])
    if view.controller_id not in view.brokers:
        raise KafkaError(
            f"the cluster of {cluster.bootstrap_servers} has no controller at the moment; try "
            "again",
            ErrorCode.NOT_CONTROLLER,
        )
    return view.controller_id


def ask_controller(
    cluster: Cluster,
    spec: ApiSpec[Req, Resp],
    message: Req,
    error_of: Callable[[Resp], KafkaError | None],
) -> Resp:
    """Return the controller's answer, once there is one without a top-level error."""
    find = partial(controller_of, cluster)
    return ask_until_done(cluster, spec, message, find, error_of, what=spec.name)[1]


def ask_each_broker(
    cluster: Cluster, name: str, spec: ApiSpec[Req, CodedT], message: Req
) -> list[tuple[int, CodedT]]:
    """Return every live broker's id and answer, by id. `name`: the name of the information, for the
    error of a broker that does not answer in time."""

    def asked(broker_id: int) -> tuple[int, CodedT]:
        what = f"{name} of broker {broker_id}"
        return ask_until_done(
            cluster,
            spec,
            message,
            lambda _: broker_id,
            lambda answer: error_from(answer.error_code, what=what),
            what=what,
        )

    return [asked(broker_id) for broker_id in sorted(cluster.metadata([]).brokers)]


def ask_leaders(
    cluster: Cluster, what: str, partitions: Iterable[TopicPartition], ask: "Ask[Answer]"
) -> dict[TopicPartition, Answer]:
    """Return the answers in the order of `partitions`. Raises the first final error, or the last at
    the deadline."""
    wanted = list(dict.fromkeys(TopicPartition(*tp) for tp in partitions))
    retry = Retry(what, Deadline.after(cluster.deadline_ms))
    found: dict[TopicPartition, Answer] = {}
    while left := [tp for tp in wanted if tp not in found]:
        errors = _round(cluster, what, left, ask, found)
        if errors:
            final = (each for each in errors if isinstance(each, KafkaError) and not each.retriable)
            retry.pause(next(final, errors[-1]))
            cluster.refresh({tp.topic for tp in left})
    return {tp: found[tp] for tp in wanted}


def partitions_by_leader(
    cluster: Cluster, partitions: Iterable[TopicPartition]
) -> dict[int, list[TopicPartition]]:
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in partitions:
        by_leader.setdefault(cluster.leader(tp).broker_id, []).append(tp)
    return by_leader


def _round(
    cluster: Cluster,
    what: str,
    left: list[TopicPartition],
    ask: "Ask[Answer]",
    found: dict[TopicPartition, Answer],
) -> list[HeadraceError]:
    """Ask each leader once; add the answers to `found`, and return the errors."""
    errors: list[HeadraceError] = []
    for broker_id, asked in partitions_by_leader(cluster, left).items():
        silent = dict.fromkeys(asked)
        try:
            for tp, outcome in ask(broker_id, asked):
                silent.pop(tp, None)
                if isinstance(outcome, KafkaError):
                    errors.append(outcome)
                else:
                    found[tp] = outcome
        except (DeadlineExceededError, KafkaError) as failure:
            errors.append(failure)
            continue
        if silent:
            names = ", ".join(str(tp) for tp in silent)
            errors.append(
                KafkaError(
                    f"{what}: broker {broker_id} left out of its answer {names}",
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                )
            )
    return errors


def wait_until(
    cluster: Cluster, is_done: Callable[[], bool], problem: str, *, deadline_ms: int | None = None
) -> None:
    """Poll until `is_done` is true; DeadlineExceededError with `problem` at the deadline."""
    deadline = Deadline.after(deadline_ms or cluster.deadline_ms)
    attempt = 0
    while not is_done():
        deadline.check(problem)
        sleep_ms(min(pause_ms(attempt), deadline.left_ms))
        attempt += 1
