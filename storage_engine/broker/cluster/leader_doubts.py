"""Leaders that this broker has just lost the connection to, or whose process has ended here: they
are perhaps dead.

    connection lost, probe not answered ──► in doubt
    answers again, another incarnation, DOUBT_MS over ──► not in doubt

The kernel of a killed process closes its connections at once, and so the brokers that fetch from it
see it die before ZooKeeper does. Clients see it, too, and ask at once who leads now. A client that
then gets the dead leader's name asks again after a second (librdkafka), one that gets no leader
after a tenth of that, if it had requests on their way to the dead one. So a leader in doubt is not
named; clients that know it may still write to it. It is no proof: where only the way
between two brokers is cut, the controller's word counts again after DOUBT_MS.

The first answer to a client that has not heard of it names no successor either. Where one answer
both leaves out the leader that librdkafka knew and names the next one, it may forget the latter,
and then asks again only after up to a second. Partitions that the broker did not lead when it died
are not concerned, nor are partitions that it gave up before it stopped. Source: R-REP12.

Asks leaders for a sign of life before a client is told of them.

A client whose leader was killed asks who leads now within a millisecond. The kernel closes the
connections of a killed process one after the other, so this broker may still have its own by then;
and librdkafka that gets the dead leader's name once more asks again only after a second. So a
leader is asked something first: the answer shows that it lives, and a dead one's connection breaks
before one comes. Source: R-REP12.

No connection to a machine that went dark breaks, and none to a process that hangs. A leader that
has not answered after PROBE_MS is in doubt, too: clients that have given up their requests then
expect its successor, and are told of it in the first answer that knows it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import NamedTuple

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.ids import BrokerEpoch, BrokerId, TopicPartition
from storage_engine.core.ports import Clock, Endpoint, Scheduler, Timer, TransportError
from storage_engine.protocol.apis.api_versions import API as API_VERSIONS
from storage_engine.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from storage_engine.protocol.transport import Transport

DOUBT_MS = 2_000
"""How long a doubt counts: a few failovers, where a death is noticed when it happens."""

GONE_MS = 1_000
"""How long clients may still ask for a removed broker."""


class _Doubt(NamedTuple):
    incarnation: BrokerEpoch
    since_ms: int


class LeaderDoubts:
    """The brokers in doubt, as one broker sees them."""

    def __init__(self, metadata: MetadataCache, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._doubts: dict[BrokerId, _Doubt] = {}
        """Also doubts that are older than DOUBT_MS: a broker that stays out of reach is not doubted
        again and again."""
        self._gone_ms: dict[BrokerId, int] = {}
        """When brokers left the list of live ones, in monotonic ms."""
        self._told: set[int] = set()
        """The connections that were answered since the last broker was doubted or went."""
        self._replaced: dict[TopicPartition, BrokerId] = {}
        """The partitions whose leader has just gone, with this former leader."""
        metadata.on_departed = self._departed
        metadata.on_leader_replaced = self._leader_replaced

    def lost(self, broker: BrokerId) -> None:
        """Doubt a broker: a connection to it broke or failed, it is silent, or its process has
        ended."""
        known = self._metadata.brokers.get(broker)
        if known is None:
            return
        doubt = self._doubts.get(broker)
        if doubt is None or doubt.incarnation != known.epoch:
            self._doubts[broker] = _Doubt(known.epoch, self._clock.monotonic_ms())
            self._told.clear()

    def heard(self, broker: BrokerId) -> None:
        """End the doubt: the broker has answered."""
        if self._doubts:
            self._doubts.pop(broker, None)

    def current(self) -> frozenset[BrokerId]:
        """The brokers that are not to be named as leaders now."""
        if not self._doubts:
            return frozenset()
        since_ms = self._clock.monotonic_ms() - DOUBT_MS
        return frozenset(
            broker
            for broker, doubt in self._doubts.items()
            if doubt.since_ms > since_ms
            and (known := self._metadata.brokers.get(broker)) is not None
            and known.epoch == doubt.incarnation
        )

    @property
    def replaced(self) -> Mapping[TopicPartition, BrokerId]:
        """The partitions whose leaders have just gone, with their former leaders."""
        return self._replaced

    def untold(self, connection: int) -> frozenset[BrokerId]:
        """The brokers that have just gone, if this is the first answer on the connection since;
        otherwise none. No successor of them is to be named (`replaced`)."""
        gone = self._just_gone()
        if not gone and not self.current():
            self._told.clear()
            return gone
        if connection in self._told:
            return frozenset()
        self._told.add(connection)
        return gone

    def _just_gone(self) -> frozenset[BrokerId]:
        if self._gone_ms:
            since_ms = self._clock.monotonic_ms() - GONE_MS
            known = self._metadata.brokers
            self._gone_ms = {
                broker: gone_ms
                for broker, gone_ms in self._gone_ms.items()
                if gone_ms > since_ms and broker not in known
            }
        if not self._gone_ms and self._replaced:
            # Not cleared: an answer in the making may still read it.
            self._replaced = {}
        return frozenset(self._gone_ms)

    def _departed(self, broker: BrokerInfo) -> None:
        doubt = self._doubts.get(broker.broker_id)
        now_ms = self._clock.monotonic_ms()
        if doubt is None or doubt.since_ms <= now_ms - DOUBT_MS:
            # No answer since then has named it as a doubtful one.
            self._told.clear()
        self._gone_ms[broker.broker_id] = now_ms
        # Partitions that it led before its last departure are no news.
        led_before = self._replaced.items()
        self._replaced = {tp: former for tp, former in led_before if former != broker.broker_id}

    def _leader_replaced(self, partition: TopicPartition, former: BrokerId) -> None:
        if former in self._gone_ms:
            self._replaced[partition] = former


CHANNEL = "probe"
PROBE_MS = 200
"""The longest wait for a probe: many turns of a busy leader's loop, and longer than a dying process
takes to close what it has open, also on a busy machine. A false doubt costs the clients that ask
meanwhile a pause; those that know the leader write on."""

TIMEOUT_MS = 30_000
"""The timeout of a probe: a leader that hangs is not dead, and gets no other meanwhile."""

PROBED_MAX = 16
"""The most leaders that are probed for one request: a client that asks about so many topics has not
just lost one leader."""

LOOKED_AT_MAX = 1_000
"""The most topics, and the most partitions, whose leaders are looked up for a request."""


class _Question:
    """A request that waits until the leaders in `left` have answered."""

    __slots__ = ("left", "then", "timer")

    def __init__(self, leaders: Iterable[BrokerInfo], then: Callable[[], None]) -> None:
        self.left = set(leaders)
        self.then = then
        self.timer: Timer | None = None


class LeaderProbes:
    """The probes of one broker. All requests that wait for the same leader share one."""

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
        """The incarnations that are being probed, with the requests that wait for each."""

    def ask(self, topics: Iterable[str], then: Callable[[], None]) -> None:
        """Call `then` once: when the leaders of the topics have answered or are in doubt, and after
        PROBE_MS at the latest, which puts the others in doubt; at once with no leader to probe."""
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
            self._doubt(leader)
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

    def _on_reply(self, leader: BrokerInfo, reply: ApiVersionsResponse | TransportError) -> None:
        if isinstance(reply, TransportError):
            self._doubt(leader)
            self._transport.disconnect(_endpoint(leader), CHANNEL)
        else:
            self._doubts.heard(leader.broker_id)
        for question in self._under_way.pop(leader, {}):
            question.left.discard(leader)
            if not question.left and question.timer is not None:
                question.timer.cancel()
                question.then()

    def _doubt(self, leader: BrokerInfo) -> None:
        known = self._metadata.brokers.get(leader.broker_id)
        if known is not None and known.epoch == leader.epoch:
            # Otherwise it concerns an earlier incarnation than the known one.
            self._doubts.lost(leader.broker_id)


def _endpoint(leader: BrokerInfo) -> Endpoint:
    return Endpoint(broker_id=leader.broker_id, host=leader.host, port=leader.port)
