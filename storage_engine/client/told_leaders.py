"""Leaders that a client was told by brokers which refused to serve it.

A broker that has just moved a partition knows the new leader before all others do. So what it says
counts above the next answers about metadata, until one of them knows as much: else a client would
be sent back and forth. Source: KIP-951.
"""

from collections.abc import Iterable

from storage_engine.client.metadata import ClusterMetadata, Leader, with_leader
from storage_engine.core.ids import TopicPartition
from storage_engine.net.deadline import monotonic_ms
from storage_engine.protocol.apis.current_leaders import CurrentLeader, LeaderNode

TOLD_MS = 5_000
"""For longer than that no broker is behind another one."""


class ToldLeaders:
    """Of one client."""

    def __init__(self) -> None:
        self._told: dict[TopicPartition, tuple[Leader, int]] = {}

    def told(
        self,
        view: ClusterMetadata,
        tp: TopicPartition,
        current: CurrentLeader | None,
        nodes: Iterable[LeaderNode],
    ) -> ClusterMetadata | None:
        """The view with the leader; None where that is no news."""
        if current is None:
            return None
        leader = Leader(*current)
        changed = with_leader(view, tp, leader, nodes)
        if changed is not None:
            self._told[tp] = leader, monotonic_ms() + TOLD_MS
        return changed

    def kept(self, before: ClusterMetadata, fresh: ClusterMetadata) -> ClusterMetadata:
        """An answer about metadata, without what is older than what was told."""
        now_ms = monotonic_ms()
        for tp, (leader, until_ms) in list(self._told.items()):
            known, found = before.topics.get(tp.topic), fresh.topics.get(tp.topic)
            if now_ms < until_ms and found is None:
                continue
            changed = None
            if now_ms < until_ms and known is not None and found is not None:
                is_same = known.topic_id == found.topic_id
                changed = with_leader(fresh, tp, leader, ()) if is_same else None
            if changed is None:
                # Known by now, dead, or of a topic that was made anew.
                del self._told[tp]
            else:
                fresh = changed
        return fresh
