"""The levels of features that the cluster uses, as this broker knows them: read at the start,
before any client is served, and again whenever they change.

A broker that does not support them ends, since it would misread what others store. A node that
others remove or make unreadable changes nothing: the controller writes it again. Source: KIP-584.
"""

import logging
from collections.abc import Callable

from storage_engine.core.errors import HeadraceError
from storage_engine.core.features import (
    FIRST_FEATURES,
    FinalizedFeatures,
    UnsupportedFeatureError,
    check_supported,
)
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, NewestWatches, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import FeatureZNode

log = logging.getLogger(__name__)

RETRY_MS = 200


class ClusterFeatures:
    """The gate that asks for a level before a new format or request is used."""

    def __init__(self, metadata_store: MetadataStore, scheduler: Scheduler) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = Flows()
        self._watches = NewestWatches(self._flows)
        self.finalized = FIRST_FEATURES
        """The levels with their epoch; the lowest before they are known."""
        self._is_started = False
        self._is_known = False
        self._waiting: list[Callable[[], None]] = []
        self._on_refused: list[Callable[[HeadraceError], None]] = []
        self._listeners: list[Callable[[], None]] = []

    def level(self, name: str) -> int:
        """Return the level that the cluster uses of a feature; 0 for one that is not known."""
        return self.finalized.level(name)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever the levels have changed."""
        self._listeners.append(listener)

    def when_known(
        self, act: Callable[[], None], on_refused: Callable[[HeadraceError], None]
    ) -> None:
        """Begin to read, unless that is done; call `act` once the levels are known. `on_refused`:
        this broker does not support them, now or at any later time."""
        self._on_refused.append(on_refused)
        if self._is_known:
            act()
            return
        self._waiting.append(act)
        if not self._is_started:
            self._is_started = True
            self._read_again()

    def refresh(self, done: Callable[[None], None]) -> None:
        """Read the levels now; `done` once they are read."""
        self._flows.start(self._read(), done)

    def close(self) -> None:
        self._flows.close()

    def _read_again(self) -> None:
        self._flows.start(self._read())

    def _read(self) -> Flow[None]:
        while True:
            watch = self._watches.newest(FeatureZNode.PATH, self._read_again)
            found = yield from self._zookeeper.get(FeatureZNode.PATH, watch)
            if found.status is ZkStatus.NO_NODE:
                # Reading sets no watch where there is nothing.
                found = yield from self._zookeeper.exists(FeatureZNode.PATH, watch)
                if found.ok:
                    continue
            if found.ok or found.is_absent:
                self._take(found)
                return
            yield from pause(self._scheduler, RETRY_MS)

    def _take(self, found: ZkReply) -> None:
        try:
            finalized = self._decoded(found)
            check_supported(finalized.levels)
        except UnsupportedFeatureError as failure:
            for on_refused in self._on_refused:
                on_refused(failure)
            return
        except ZnodeFormatError as failure:
            # Whoever repairs it is heard.
            log.error("features not read: %s", failure)
            return
        is_changed = finalized != self.finalized
        self.finalized = finalized
        if is_changed or not self._is_known:
            log.info("features epoch=%d levels=%s", finalized.epoch, dict(finalized.levels))
        if not self._is_known:
            self._is_known = True
            waiting, self._waiting = self._waiting, []
            for act in waiting:
                act()
        if is_changed:
            for listener in self._listeners:
                listener()

    def _decoded(self, found: ZkReply) -> FinalizedFeatures:
        if found.stat is None:
            return self.finalized
        return FinalizedFeatures(FeatureZNode.decode(found.data).levels, found.stat.version)
