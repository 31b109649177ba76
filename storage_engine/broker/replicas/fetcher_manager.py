"""All fetch loops of a broker: one for each leader and channel that has a partition.

A partition is in at most one of them. It changes the channel after its answer has been appended,
never while a fetch of it is under way, so no offset is fetched twice and none is left out. Its next
fetch, over the other channel, begins at the end of its log, like every fetch. Source: R-REP2,
R-CTL3.
"""

from collections.abc import Sequence

from storage_engine.broker.replicas.fetcher import FetcherPorts, FetcherSettings, PeerFetcher
from storage_engine.broker.replicas.followed_partition import Followed, FollowerState
from storage_engine.broker.replicas.hosted_partition import HostedPartition
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import Endpoint

_Key = tuple[Endpoint, str]
"""Leader and channel."""


class FetcherManager:
    """Follows partitions, each over the channel for its state."""

    def __init__(self, settings: FetcherSettings, ports: FetcherPorts) -> None:
        self._settings = settings
        self._ports = ports
        self._fetchers: dict[_Key, PeerFetcher] = {}

    def add(self, partition: HostedPartition, leader: Endpoint) -> None:
        """Follow `leader` for this partition, from the next `wake` on."""
        key, known = self._take_out(partition.topic_partition)
        progress = FollowerState.UNKNOWN
        if key is not None and key[0] == leader and known is not None:
            # A repeated order of the same leadership must not move it to the channel in sync.
            progress = known.progress
        self._follow(Followed(partition, progress), leader)
        self._close_idle(key)

    def look_at(self, tp: TopicPartition) -> None:
        """The log was changed by something other than the fetches of this partition."""
        for fetcher in self._fetchers.values():
            fetcher.look_at(tp)

    def wake(self) -> None:
        """Fetch what was added since the last call."""
        for fetcher in self._fetchers.values():
            fetcher.wake()

    def heard_ms(self, tp: TopicPartition) -> int | None:
        """The monotonic time in ms of the last answer of a followed partition's leader; None before
        the first."""
        return next((f.heard_ms for f in self._fetchers.values() if tp in f), None)

    def most_behind(self) -> int:
        """The most committed records that one followed partition lacks."""
        return max((each.most_behind for each in self._fetchers.values()), default=0)

    def remove(self, tp: TopicPartition) -> None:
        """Stop following; idle loops are closed."""
        key, _ = self._take_out(tp)
        self._close_idle(key)

    def close(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()

    def _follow(self, followed: Followed, leader: Endpoint) -> None:
        key = leader, followed.channel
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = PeerFetcher(
                leader,
                self._settings,
                self._ports,
                channel=followed.channel,
                on_leaving=self._change_channel,
            )
        fetcher.add(followed)

    def _change_channel(self, fetcher: PeerFetcher, leaving: Sequence[Followed]) -> None:
        """Follow these partitions, which no loop has any more, over their new channels."""
        channels = {followed.channel for followed in leaving}
        for followed in leaving:
            self._follow(followed, fetcher.endpoint)
        for channel in sorted(channels):
            self._fetchers[fetcher.endpoint, channel].wake()
        self._close_idle((fetcher.endpoint, fetcher.channel))

    def _take_out(self, tp: TopicPartition) -> tuple[_Key | None, Followed | None]:
        for key, fetcher in self._fetchers.items():
            if tp in fetcher:
                return key, fetcher.remove(tp)
        return None, None

    def _close_idle(self, key: _Key | None) -> None:
        if key is not None and not self._fetchers[key]:
            self._fetchers.pop(key).close()
