"""Ask several brokers in parallel, within one time limit, and report which did not answer.

    lines.ask({1: [(spec, message)], 2: […]})  ->  {1: [answer], 2: error}

A broker that hangs costs no more than the limit, and costs the others nothing: each is asked by a
thread of its own, over a connection of its own. There are no retries. Not thread-safe.
Source: R-CON2.
"""

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from storage_engine.client.addresses import Address
from storage_engine.client.broker_discovery import GivenBrokers
from storage_engine.client.connection import NotServedError
from storage_engine.client.pool import ConnectionPool
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.core.errors import DeadlineExceededError, HeadraceError, KafkaError
from storage_engine.net.deadline import Deadline
from storage_engine.protocol.apis.spec import AnyApi
from storage_engine.tools.document import Document

CLIENT_ID = "headrace-console"
"""The client id of the console's requests, for brokers' logs and a client quota."""

log = logging.getLogger(__name__)

Question = tuple[AnyApi, Any]
Given = list[Any]
"""A broker's answers in the order of the questions, each of its API's type, or an error."""
Answers = dict[int, Given | HeadraceError]
Ask = Callable[[Mapping[int, Sequence[Question]]], dict[int, Given]]
"""Asks brokers; the result leaves out brokers that gave no answer."""


def unanswered(answers: Answers, what: str) -> list[Document]:
    """Return a document for each error in `answers`; `what` is what the broker was asked for."""
    return [
        {"broker": broker, "what": what, "why": why_not(broker, each)}
        for broker, each in sorted(answers.items())
        if isinstance(each, HeadraceError)
    ]


def why_not(broker: int, error: HeadraceError) -> str:
    """Return the reason why a broker gave no answer, as text."""
    if isinstance(error, DeadlineExceededError):
        return f"broker {broker} did not answer in time: {error}"
    return f"broker {broker}: {error}"


class _Line:
    """One broker's connection and the thread that waits for it."""

    def __init__(self, security: ClientSecurity | None) -> None:
        self._security = security
        self._pools: dict[Address, ConnectionPool] = {}
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name="console-line", daemon=True)
        self.thread.start()

    def submit(self, work: Callable[[], None] | None) -> None:
        self._work.put(work)

    def _run(self) -> None:
        try:
            while (work := self._work.get()) is not None:
                work()
        finally:
            for pool in self._pools.values():
                pool.close()

    def exchange(
        self, address: Address, questions: Sequence[Question], deadline: Deadline
    ) -> Given:
        """Return the answers in order; an API that the broker does not serve gives its error."""
        pool = self._pools.get(address)
        if pool is None:
            for other in self._pools.values():
                other.close()
            source = GivenBrokers(f"{_bracketed(address[0])}:{address[1]}")
            pool = ConnectionPool(source, CLIENT_ID, self._security)
            self._pools = {address: pool}
        connection = pool.take_at(address, deadline)
        answers: Given = []
        try:
            for spec, message in questions:
                try:
                    answers.append(connection.exchange(spec, message, deadline))
                except NotServedError as error:
                    answers.append(error.as_outcome())
        except BaseException:
            connection.close()
            raise
        pool.give_back(connection)
        return answers


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class BrokerLines:
    """A connection with its thread for each broker asked so far."""

    def __init__(self, security: ClientSecurity | None) -> None:
        self._security = security
        self._lines: dict[int, _Line] = {}
        self._busy: set[int] = set()
        self._closed = False

    def ask(
        self,
        questions: Mapping[int, Sequence[Question]],
        addresses: Mapping[int, Address],
        *,
        timeout_ms: int,
    ) -> Answers:
        """Return each broker's answers, or its error if there are none within `timeout_ms`. A
        broker that still owes an answer to an earlier question is not asked again."""
        assert not self._closed
        answers: Answers = {}
        results: queue.SimpleQueue[tuple[int, Given | HeadraceError]] = queue.SimpleQueue()
        deadline = Deadline.after(timeout_ms)
        for broker, asked in questions.items():
            address = addresses.get(broker)
            if address is None:
                answers[broker] = KafkaError(f"broker {broker} is not among the live brokers")
            elif broker in self._busy:
                answers[broker] = DeadlineExceededError("an earlier request is still unanswered")
            else:
                self._submit(broker, address, asked, deadline, results)
        left = {broker for broker in questions if broker not in answers}
        while left:
            try:
                broker, outcome = results.get(timeout=deadline.left_ms / 1000 + 0.05)
            except queue.Empty:
                break
            answers[broker] = outcome
            left.discard(broker)
        for broker in left:
            answers[broker] = DeadlineExceededError(f"no response within {timeout_ms} ms")
        return answers

    def _submit(
        self,
        broker: int,
        address: Address,
        asked: Sequence[Question],
        deadline: Deadline,
        results: "queue.SimpleQueue[tuple[int, Given | HeadraceError]]",
    ) -> None:
        line = self._lines.get(broker)
        if line is None:
            line = self._lines[broker] = _Line(self._security)
        self._busy.add(broker)

        def work() -> None:
            outcome: Given | HeadraceError
            try:
                outcome = line.exchange(address, asked, deadline)
            except KafkaError as error:
                outcome = error.as_outcome()
            except HeadraceError as error:
                outcome = error.with_traceback(None)
            except Exception as error:
                # The thread goes on: else this broker would be silent for ever.
                log.exception("a request to broker %d has failed", broker)
                outcome = HeadraceError(f"its response could not be read: {error}")
            self._busy.discard(broker)
            results.put((broker, outcome))

        line.submit(work)

    def close(self) -> None:
        """End the threads; one that waits for a broker ends at its deadline."""
        self._closed = True
        for line in self._lines.values():
            line.submit(None)
        self._lines.clear()
