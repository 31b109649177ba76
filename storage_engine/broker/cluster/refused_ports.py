"""Suspects other brokers whose ports refuse connections: the proof of death across machines, where
`broker.death.proof=port` asks for it.

    connection ended by the other kernel ──► probes ──all refused──► the other brokers are asked
                                               │                         │
              a port that answers, or silence ◄┘                         └► more than half answer:
                                                                            suspected

Who was alive when the probes began is suspected in the end, not who has the id and the port by
then. A broker that reaches few of the others is more likely cut off than they are dead. Source:
R-CTL12, docs/failover.md.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from storage_engine.core.control.death_proof import (
    PROBE_INTERVAL_MS,
    PortVerdict,
    RefusedPort,
    is_of_the_majority,
)
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import Endpoint, PeerPorts, PortAnswer, Scheduler

log = logging.getLogger(__name__)

Suspects = list[str]
"""The names of sessions."""


class _Series:
    """The probes of one port, and of the others' afterwards."""

    def __init__(self, endpoint: Endpoint, suspects: Suspects) -> None:
        self.endpoint = endpoint
        self.suspects = suspects
        self.port = RefusedPort()
        self.unheard = 0
        """Of the others, those that have not answered in either way."""
        self.answering = 0


class RefusedPorts:
    """The probes under way, one series a port."""

    def __init__(
        self,
        ports: PeerPorts,
        scheduler: Scheduler,
        others: Callable[[], Sequence[Endpoint]],
    ) -> None:
        """`others`: where all other brokers of the cluster listen."""
        self._ports = ports
        self._scheduler = scheduler
        self._others = others
        self._series: dict[Endpoint, _Series] = {}
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

    def ask_again(self, broker_id: BrokerId, suspects: Suspects) -> None:
        """Begin another series of probes: what was proven some time ago may no longer be so. It
        says nothing of the broker's next session, which may be at another port."""
        endpoint = self._asked.get(broker_id)
        if endpoint is not None and not self._closed and endpoint not in self._series:
            self._begin(endpoint, suspects)

    def confirm(self, broker_id: BrokerId, on_done: Callable[[bool], None]) -> None:
        """Ask the port once more, whether it still refuses."""
        endpoint = self._asked[broker_id]
        self._ports.probe(endpoint, lambda answer: on_done(answer is PortAnswer.REFUSED))

    def close(self) -> None:
        self._closed = True
        self._series.clear()

    def _connection_closed(self, endpoint: Endpoint) -> None:
        if self._closed or endpoint in self._series:
            return
        broker_id = BrokerId(endpoint.broker_id)
        suspects = self._sessions_of(broker_id)
        if suspects:
            self._asked[broker_id] = endpoint
            self._begin(endpoint, suspects)

    def _begin(self, endpoint: Endpoint, suspects: Suspects) -> None:
        series = self._series[endpoint] = _Series(endpoint, suspects)
        self._probe(series)

    def _is_over(self, series: _Series) -> bool:
        return self._closed or self._series.get(series.endpoint) is not series

    def _probe(self, series: _Series) -> None:
        if not self._is_over(series):
            self._ports.probe(series.endpoint, partial(self._probed, series))

    def _probed(self, series: _Series, answer: PortAnswer) -> None:
        if self._is_over(series):
            return
        match series.port.probed(answer):
            case PortVerdict.ASK_AGAIN:
                self._scheduler.call_later(PROBE_INTERVAL_MS, partial(self._probe, series))
            case PortVerdict.LIVES:
                del self._series[series.endpoint]
            case PortVerdict.DEAD:
                self._ask_the_others(series)

    # --- whether it is this broker that is cut off ---

    def _ask_the_others(self, series: _Series) -> None:
        known = self._others()
        asked = [each for each in known if each.broker_id != series.endpoint.broker_id]
        series.unheard = len(asked)
        heard = partial(self._heard, series, len(known) + 1)
        for endpoint in asked:
            self._ports.probe(endpoint, heard)
        if not asked:
            self._give_up(series)

    def _heard(self, series: _Series, brokers: int, answer: PortAnswer) -> None:
        if self._is_over(series):
            return
        series.unheard -= 1
        series.answering += answer is PortAnswer.ACCEPTED
        where = series.endpoint
        if is_of_the_majority(series.answering, brokers):
            del self._series[where]
            log.warning(
                "broker %d: %s:%d refuses connections", where.broker_id, where.host, where.port
            )
            self._on_refused(series.suspects)
        elif not series.unheard:
            self._give_up(series)

    def _give_up(self, series: _Series) -> None:
        del self._series[series.endpoint]
        log.warning(
            "broker %d refuses connections, but this broker reaches too few of the others to say"
            " that it is dead",
            series.endpoint.broker_id,
        )
