"""Leaders that this broker has just lost the connection to, which are perhaps dead, and leaders
that have just died.

    connection lost ──► in doubt ──answers again, another incarnation, DOUBT_MS over──► not in doubt
                           └──its session ends──► gone, and listed for LISTED_MS

The kernel of a killed process closes its connections at once, and so the brokers that fetch from it
see it die before ZooKeeper does. Clients see it, too, and ask at once who leads now. Whoever then
gets the dead leader's name asks again after a second (librdkafka), whoever hears that there is no
leader, after a tenth of that. So a leader in doubt is not named, which keeps nobody from writing
to it who knows it. It is no proof: where only the way between two brokers is cut, the controller's
word counts again after DOUBT_MS.

librdkafka that finds a broker no longer listed drops what it had there, and forgets the new leader
of a partition that is just on its way from there: it then asks after a second. So the list of
brokers keeps one that led for some more seconds, in which clients move. Source: R-REP12.
"""

from typing import NamedTuple

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.core.control.cluster_state import BrokerInfo
from storage_engine.core.ids import BrokerEpoch, BrokerId
from storage_engine.core.ports import Clock

DOUBT_MS = 2_000
"""A few times as long as a failover takes where death is noticed when it happens."""

LISTED_MS = 5_000
"""Some times as long as librdkafka needs to look for a leader again."""


class _Doubt(NamedTuple):
    incarnation: BrokerEpoch
    since_ms: int


class LeaderDoubts:
    """The brokers in doubt, as one broker sees them."""

    def __init__(self, metadata: MetadataCache, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._doubts: dict[BrokerId, _Doubt] = {}
        """Also those that are older than DOUBT_MS: a broker that stays out of reach is not doubted
        again and again."""
        self._gone: list[tuple[BrokerInfo, int]] = []
        """Leaders that have died, and when."""
        metadata.on_leaders_gone = self._note_gone

    def lost(self, broker: BrokerId) -> None:
        """A connection to it broke, or could not be made."""
        known = self._metadata.brokers.get(broker)
        if known is None:
            return
        doubt = self._doubts.get(broker)
        if doubt is None or doubt.incarnation != known.epoch:
            self._doubts[broker] = _Doubt(known.epoch, self._clock.monotonic_ms())

    def heard(self, broker: BrokerId) -> None:
        """It has answered."""
        if self._doubts:
            self._doubts.pop(broker, None)

    def current(self) -> frozenset[BrokerId]:
        """Those that are not to be named as leaders now."""
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

    def _note_gone(self, leaders: list[BrokerInfo]) -> None:
        now_ms = self._clock.monotonic_ms()
        names = {leader.broker_id for leader in leaders}
        kept = [(each, since_ms) for each, since_ms in self._gone if each.broker_id not in names]
        self._gone = kept + [(leader, now_ms) for leader in leaders]

    def still_listed(self) -> list[BrokerInfo]:
        """The leaders that have died lately, and are not back."""
        if not self._gone:
            return []
        since_ms = self._clock.monotonic_ms() - LISTED_MS
        self._gone = [(each, at_ms) for each, at_ms in self._gone if at_ms > since_ms]
        live = self._metadata.brokers
        return [each for each, _ in self._gone if each.broker_id not in live]
