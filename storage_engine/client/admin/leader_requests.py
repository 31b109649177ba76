"""Sends requests about partitions to their leaders, and to the next leader when one has changed.

After a retriable error a partition is requested again, with the others that are left, until the
deadline of the cluster; a final error ends the call. So requests must be idempotent.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

from storage_engine.client.cluster import Cluster
from storage_engine.client.retry import Retry
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import Deadline

Answer = TypeVar("Answer")

Ask = Callable[[int, list[TopicPartition]], Iterable[tuple[TopicPartition, Answer | KafkaError]]]
"""Sends one request to a broker about some partitions."""


def ask_leaders(
    cluster: Cluster, what: str, partitions: Iterable[TopicPartition], ask: "Ask[Answer]"
) -> dict[TopicPartition, Answer]:
    """The answers, in the order of `partitions`. Raises the first final error, or the last one at
    the deadline."""
    wanted = list(dict.fromkeys(partitions))
    retry = Retry(what, Deadline.after(cluster.deadline_ms))
    found: dict[TopicPartition, Answer] = {}
    while left := [tp for tp in wanted if tp not in found]:
        errors = _round(cluster, what, left, ask, found)
        if errors:
            final = (each for each in errors if isinstance(each, KafkaError) and not each.retriable)
            retry.pause(next(final, errors[-1]))
            cluster.refresh({tp.topic for tp in left})
    return {tp: found[tp] for tp in wanted}


def _round(
    cluster: Cluster,
    what: str,
    left: list[TopicPartition],
    ask: "Ask[Answer]",
    found: dict[TopicPartition, Answer],
) -> list[HeadraceError]:
    """Each leader once. Adds to `found`; what failed."""
    by_leader: dict[int, list[TopicPartition]] = {}
    for tp in left:
        by_leader.setdefault(cluster.leader(tp).broker_id, []).append(tp)
    errors: list[HeadraceError] = []
    for broker_id, asked in by_leader.items():
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
