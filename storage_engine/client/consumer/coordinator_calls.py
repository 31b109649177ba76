"""Sends requests to the coordinator of a group, several at a time, each over a connection of its
own: a JoinGroup may wait for minutes, and must delay no other.

Each call ends once, with an answer or an error, unless it is dropped before. Source: KIP-98
(FindCoordinator).
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from storage_engine.client.asking import GROUP, find_coordinator
from storage_engine.client.cluster import Cluster
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.groups.group_requests import GroupRequest
from storage_engine.core.errors import (
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    UnsupportedVersionError,
)
from storage_engine.net.blocking import Readable
from storage_engine.net.deadline import Deadline

LOOKUP_MS = 1_000
"""The time limit of one search for the coordinator; nothing else happens meanwhile."""

Answer: TypeAlias = Any
"""The answer to any request: its type follows from the request."""

OnAnswer = Callable[[Answer, HeadraceError | None], None]
"""Called with the answer or the error."""


class CoordinatorCall:
    """A request under way."""

    __slots__ = ("connection", "deadline", "on_answer")

    def __init__(
        self, connection: BrokerConnection, deadline: Deadline, on_answer: OnAnswer
    ) -> None:
        self.connection = connection
        self.deadline = deadline
        self.on_answer = on_answer


class CoordinatorCalls:
    """The calls of one group."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._coordinator: int | None = None
        self._calls: list[CoordinatorCall] = []

    def forget_coordinator(self) -> None:
        """The coordinator is looked up before the next request."""
        self._coordinator = None

    def send(self, request: GroupRequest, timeout_ms: int, on_answer: OnAnswer) -> CoordinatorCall:
        """Raises KafkaError or DeadlineExceededError when it can't be sent now."""
        deadline = Deadline.after(timeout_ms)
        connection = self._cluster.take(self._find(), deadline.no_later_than(LOOKUP_MS))
        try:
            version = connection.version_for(request.spec)
            if version < request.least_version:
                raise UnsupportedVersionError(
                    f"{connection.name} serves {request.spec.name} {version} at most, and "
                    f"{request.least_version} is needed"
                )
            connection.send(request.spec, request.message, deadline)
        except BaseException:
            connection.close()
            raise
        call = CoordinatorCall(connection, deadline, on_answer)
        self._calls.append(call)
        return call

    def ask(self, request: GroupRequest, timeout_ms: int) -> None:
        """Send, and wait for the answer, which does not count."""
        self._cluster.request(self._find(), request.spec, request.message, timeout_ms=timeout_ms)

    def _find(self) -> int:
        if self._coordinator is None:
            deadline = Deadline.after(LOOKUP_MS)
            what = f"group '{self._group}'"
            self._coordinator = find_coordinator(self._cluster, GROUP, self._group, what, deadline)
        return self._coordinator

    def drop(self, call: CoordinatorCall) -> None:
        """Ignores the answer of a call when it arrives."""
        if call in self._calls:
            self._calls.remove(call)
            call.connection.close()

    def sockets(self) -> list[Readable]:
        """The connections on which answers may come."""
        return [call.connection for call in self._calls]

    def receive(self) -> None:
        """Processes the answers that have arrived, and ends the calls whose time is over."""
        for call in list(self._calls):
            # The callback of an earlier one may have dropped it.
            if call in self._calls:
                self._receive(call)

    def _receive(self, call: CoordinatorCall) -> None:
        answer = None
        error: HeadraceError | None = None
        try:
            answer = call.connection.receive_nowait()
            if answer is None and call.deadline.passed:
                error = DeadlineExceededError(f"{call.connection.name}: no answer in time")
        except (KafkaError, DeadlineExceededError) as failure:
            error = failure
        if answer is None and error is None:
            return
        self._calls.remove(call)
        if error is None:
            self._cluster.give_back(call.connection)
        else:
            call.connection.close()
        call.on_answer(answer, error)

    def close(self) -> None:
        for call in list(self._calls):
            self.drop(call)


def code_of(error: HeadraceError | None) -> ErrorCode:
    """The code of a call that has no answer: COORDINATOR_NOT_AVAILABLE unless the error is
    final."""
    if (
        not isinstance(error, KafkaError)
        or error.retriable
        or error.code is ErrorCode.BROKER_NOT_AVAILABLE
    ):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error.code
