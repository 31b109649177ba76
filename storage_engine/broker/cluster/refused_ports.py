"""Suspects other brokers whose ports refuse connections: the proof of death across machines, where
`broker.death.proof=port` asks for it.

A connection that the other kernel has ended begins a series of probes of that broker's port; one
answer that is no refusal ends it. Who was alive when the series began is suspected in the end, not
who has the id and the port by then. Source: R-CTL12, docs/failover.md.
"""

import logging
from collections.abc import Callable
from functools import partial

from storage_engine.core.control.death_proof import PROBE_INTERVAL_MS, PortVerdict, RefusedPort
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import Endpoint, PeerPorts, Scheduler

log = logging.getLogger(__name__)

Suspects = list[str]
"""The names of sessions."""


class RefusedPorts:
    """The probes under way, one series a port."""

    def __init__(self, ports: PeerPorts, scheduler: Scheduler) -> None:
        self._ports = ports
        self._scheduler = scheduler
        self._series: dict[Endpoint, tuple[RefusedPort, Suspects]] = {}
        self._asked: dict[BrokerId, Endpoint] = {}
        """Where each broker was probed last."""
        self._closed = False
        self._sessions_of: Callable[[BrokerId], Suspects]
        self._on_refused: Callable[[Suspects], None]

    def start(
        self,
        sessions_of: Callable[[BrokerId], Suspects],
        on_refused: Callable[[Suspects], None],
    ) -> None:
        """`sessions_of`: those by which a broker is known now. `on_refused` gets them back once its
        port has refused every probe."""
        self._sessions_of = sessions_of
        self._on_refused = on_refused
        self._ports.on_closed(self._connection_closed)

    def ask_again(self, broker_id: BrokerId) -> None:
        """Begin another series of probes: what was proven some time ago may no longer be so."""
        if endpoint := self._asked.get(broker_id):
            self._connection_closed(endpoint)

    def close(self) -> None:
        self._closed = True
        self._series.clear()

    def _connection_closed(self, endpoint: Endpoint) -> None:
        if self._closed or endpoint in self._series:
            return
        suspects = self._sessions_of(BrokerId(endpoint.broker_id))
        if suspects:
            self._asked[BrokerId(endpoint.broker_id)] = endpoint
            self._series[endpoint] = (RefusedPort(), suspects)
            self._probe(endpoint)

    def _probe(self, endpoint: Endpoint) -> None:
        if not self._closed:
            self._ports.probe(endpoint, partial(self._probed, endpoint))

    def _probed(self, endpoint: Endpoint, is_refused: bool) -> None:
        found = self._series.get(endpoint)
        if self._closed or found is None:
            return
        port, suspects = found
        match port.probed(is_refused=is_refused):
            case PortVerdict.ASK_AGAIN:
                self._scheduler.call_later(PROBE_INTERVAL_MS, partial(self._probe, endpoint))
            case PortVerdict.LIVES:
                del self._series[endpoint]
            case PortVerdict.DEAD:
                del self._series[endpoint]
                log.warning(
                    "broker %d: %s:%d refuses connections",
                    endpoint.broker_id,
                    endpoint.host,
                    endpoint.port,
                )
                self._on_refused(suspects)
