"""Asks leaders for a sign of life before a client is told of them.

A client whose leader was killed asks who leads now within a millisecond. The kernel closes the
connections of a killed process one after the other, so this broker may still have its own by then;
and librdkafka that gets the dead leader's name once more asks again only after a second. So a
leader is asked something first: the answer shows that it lives, and a dead one's connection breaks
before one comes. Whoever only hangs delays what is said by PROBE_MS. Source: R-REP12.
"""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice

from storage_engine.broker.cluster.leader_doubts import LeaderDoubts
from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import Endpoint, Scheduler, Timer, TransportError
from storage_engine.protocol.apis.api_versions import API as API_VERSIONS
from storage_engine.protocol.apis.api_versions import ApiVersionsRequest
from storage_engine.protocol.transport import Transport

CHANNEL = "probe"
PROBE_MS = 100
"""Many turns of a busy leader's loop, and longer than a dying process takes to close what it has
open, also on a busy machine. Nobody waits for a leader that hangs for longer than that."""

TIMEOUT_MS = 30_000
"""A leader that hangs is not dead: its probe stays under way, and it gets no other."""

PROBED_MAX = 16
"""The most leaders that are asked for one request: whoever asks about so many topics has not just
lost one leader."""

LOOKED_AT_MAX = 1_000
"""The most topics, and the most partitions, that are looked at to find them."""


class _Question:
    """One that waits until the leaders in `left` have answered."""

    __slots__ = ("left", "then", "timer")

    def __init__(self, leaders: Iterable[BrokerInfo], then: Callable[[], None]) -> None:
        self.left = set(leaders)
        self.then = then
        self.timer: Timer | None = None


class LeaderProbes:
    """The probes of one broker. All that wait for the same leader share one."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        metadata: MetadataCache,
        doubts: LeaderDoubts,
        transport: Transport,
        scheduler: Scheduler,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._doubts = doubts
        self._transport = transport
        self._scheduler = scheduler
        self._under_way: dict[BrokerInfo, dict[_Question, None]] = {}
        """The incarnations that are being asked, with who waits for each."""

    def ask(self, topics: Iterable[str], then: Callable[[], None]) -> None:
        """Call `then` once: when the leaders of the topics have answered or are in doubt, and after
        PROBE_MS at the latest; at once where there is nobody to ask."""
        leaders = self._leaders_of(topics)
        if not leaders:
            then()
            return
        question = _Question(leaders, then)
        question.timer = self._scheduler.call_later(PROBE_MS, partial(self._expire, question))
        for leader in leaders:
            self._probe(leader, question)

    def _expire(self, question: _Question) -> None:
        for leader in question.left:
            self._under_way.get(leader, {}).pop(question, None)
        question.then()

    def _leaders_of(self, topics: Iterable[str]) -> list[BrokerInfo]:
        items = (
            item
            for topic in islice(topics, LOOKED_AT_MAX)
            for item in (self._metadata.partitions(topic) or {}).values()
        )
        doubted = self._doubts.current()
        named = {item.leader for item in islice(items, LOOKED_AT_MAX)} - {self._broker_id}
        live = [self._metadata.brokers.get(leader) for leader in sorted(named - doubted)]
        return [leader for leader in live if leader is not None][:PROBED_MAX]

    def _probe(self, leader: BrokerInfo, question: _Question) -> None:
        is_under_way = leader in self._under_way
        self._under_way.setdefault(leader, {})[question] = None
        if not is_under_way:
            self._transport.request(
                _endpoint(leader),
                CHANNEL,
                API_VERSIONS,
                0,
                ApiVersionsRequest(),
                timeout_ms=TIMEOUT_MS,
                on_reply=partial(self._on_reply, leader),
            )

    def _on_reply(self, leader: BrokerInfo, reply: object) -> None:
        if isinstance(reply, TransportError):
            known = self._metadata.brokers.get(leader.broker_id)
            if known is not None and known.epoch == leader.epoch:
                # Else it tells of an incarnation before the one that is known now.
                self._doubts.lost(leader.broker_id)
            self._transport.disconnect(_endpoint(leader), CHANNEL)
        else:
            self._doubts.heard(leader.broker_id)
        for question in self._under_way.pop(leader, {}):
            question.left.discard(leader)
            if not question.left and question.timer is not None:
                question.timer.cancel()
                question.then()


def _endpoint(leader: BrokerInfo) -> Endpoint:
    return Endpoint(broker_id=leader.broker_id, host=leader.host, port=leader.port)
