"""Connections to brokers, kept open between uses.

A connection is in use or in the pool, never both. A child process drops the connections of its
parent.
"""

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from storage_engine.client.addresses import Address, address_text
from storage_engine.client.broker_discovery import BrokerSource
from storage_engine.client.connection import BrokerConnection
from storage_engine.client.security.client_sockets import CONNECT_TIMEOUT_MS, ClientSockets
from storage_engine.core.errors import (
    AuthenticationError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)
from storage_engine.net.deadline import Deadline, monotonic_ms, sleep_ms
from storage_engine.net.limits import BufferPool

if TYPE_CHECKING:
    from storage_engine.client.security.client_security import ClientSecurity

LOG_IN_TIMEOUT_MS = 10_000
"""The time for one address where there is a log-in. It takes up to seven round trips, and a broker
does those of many clients one after the other."""

IDLE_CONNECTIONS_PER_BROKER = 4
"""Kept open for the next user; a client reads and writes with one or two."""

AVOIDED_MS = 10_000
"""A broker that hangs accepts connections, and costs whoever asks it the time for an answer."""

_ROUND_PAUSE_MS = 100
"""The pause between two rounds over all addresses, short enough to find a starting broker at once.
"""


class ConnectionPool:
    """Opens, keeps and closes connections."""

    def __init__(
        self, source: BrokerSource, client_id: str, security: "ClientSecurity | None" = None
    ) -> None:
        self._source = source
        self._sockets = ClientSockets(security)
        self._client_id = client_id
        self._memory = BufferPool()
        self._idle: dict[Address, list[BrokerConnection]] = {}
        self._avoided_ms: dict[Address, int] = {}
        """The addresses without an answer, and until when others come first."""

    def take_at(self, address: Address, deadline: Deadline) -> BrokerConnection:
        """An idle connection to that address, or a new one."""
        connection = self._take_idle(address)
        if connection is not None:
            return connection
        self._sockets.prepare(deadline)
        has_log_in = self._sockets.sasl is not None
        limit = deadline.no_later_than(LOG_IN_TIMEOUT_MS if has_log_in else CONNECT_TIMEOUT_MS)
        return BrokerConnection.open(address, self._client_id, limit, self._memory, self._sockets)

    def take_any(self, known: Sequence[Address], deadline: Deadline) -> BrokerConnection:
        """Return a connection to some broker. The brokers in `known` are tried first, then the
        brokers of the source, both in random order; brokers that did not answer lately come last.

        KafkaError(BROKER_NOT_AVAILABLE) that names every address when none answers until the
        deadline. AuthenticationError at once: each further attempt would look like an attack.
        """
        for address in known:
            if not self._is_avoided(address) and (idle := self._take_idle(address)) is not None:
                return idle
        failures: dict[str, str] = {}
        while True:
            for address in self._candidates(known, deadline, failures):
                try:
                    return self.take_at(address, deadline)
                except AuthenticationError:
                    raise
                except DeadlineExceededError as error:
                    # The last attempt may have had no time: what was said before tells more.
                    failures.setdefault(address_text(*address), _reason(address, error))
                    self.avoid(address)
                except HeadraceError as error:
                    failures[address_text(*address)] = _reason(address, error)
                    self.avoid(address)
            if deadline.left_ms <= _ROUND_PAUSE_MS:
                raise KafkaError(
                    f"no broker answers within {deadline.timeout_ms} ms: "
                    f"{', '.join(failures.values())}; "
                    f"{self._source.remedy}",
                    ErrorCode.BROKER_NOT_AVAILABLE,
                )
            sleep_ms(_ROUND_PAUSE_MS)

    def _candidates(
        self, known: Sequence[Address], deadline: Deadline, failures: dict[str, str]
    ) -> Iterator[Address]:
        """The source is asked when all that are known have failed."""
        yield from self._in_turn(known)
        try:
            others = self._source.addresses(deadline)
        except HeadraceError as error:
            failures[""] = str(error)
            return
        failures.pop("", None)
        yield from (address for address in self._in_turn(others) if address not in known)

    def _in_turn(self, addresses: Sequence[Address]) -> list[Address]:
        return sorted(random.sample(addresses, len(addresses)), key=self._is_avoided)

    def avoid(self, address: Address) -> None:
        """Ask others first for AVOIDED_MS: it has not answered."""
        self._avoided_ms[address] = monotonic_ms() + AVOIDED_MS

    def _is_avoided(self, address: Address) -> bool:
        until_ms = self._avoided_ms.get(address)
        if until_ms is not None and monotonic_ms() >= until_ms:
            del self._avoided_ms[address]
            return False
        return until_ms is not None

    def give_back(self, connection: BrokerConnection) -> None:
        """Keeps the connection for its next user when it can be used again."""
        idle = self._idle.setdefault(connection.address, [])
        if len(idle) < IDLE_CONNECTIONS_PER_BROKER and connection.reusable:
            idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close what is idle."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def _take_idle(self, address: Address) -> BrokerConnection | None:
        idle = self._idle.get(address, [])
        while idle:
            connection = idle.pop()
            if connection.reusable:
                return connection
            connection.close()
        return None


def _reason(address: Address, error: HeadraceError) -> str:
    """`error` without the address in front, which a socket's error has."""
    text = str(error).removeprefix(f"{address[0]}:{address[1]}: ")
    return f"{address_text(*address)} ({text})"
