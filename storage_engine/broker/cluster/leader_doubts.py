"""Leaders that this broker has just lost the connection to, or whose process has ended here: they
are perhaps dead.

    connection lost ──► in doubt ──answers again, another incarnation, DOUBT_MS over──► not in doubt

The kernel of a killed process closes its connections at once, and so the brokers that fetch from it
see it die before ZooKeeper does. Clients see it, too, and ask at once who leads now. Whoever then
gets the dead leader's name asks again after a second (librdkafka), whoever hears that there is no
leader, after a tenth of that. So a leader in doubt is not named, which keeps nobody from writing
to it who knows it. It is no proof: where only the way between two brokers is cut, the controller's
word counts again after DOUBT_MS. Source: R-REP12.
"""

from typing import NamedTuple

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.core.ids import BrokerEpoch, BrokerId
from storage_engine.core.ports import Clock

DOUBT_MS = 2_000
"""A few times as long as a failover takes where death is noticed when it happens."""


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

    def lost(self, broker: BrokerId) -> None:
        """A connection to it broke or could not be made, or its process has ended."""
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
