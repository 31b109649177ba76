"""The levels of features in ZooKeeper, which the controller alone changes, under its epoch.

A node that is not there, or that others have made unreadable, is written as this broker knows the
levels: at the lowest for a cluster that an earlier release has made. Source: KIP-584.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from storage_engine.broker.controller.store import ControllerFence
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.features import (
    SUPPORTED_BY_FIRST_RELEASE,
    FeatureUpdate,
    FinalizedFeatures,
    Supported,
    updated_levels,
)
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import MetadataStore, Scheduler, ZkOp, ZkOpKind, ZkReply, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, NewestWatches, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode, FeatureZNode

log = logging.getLogger(__name__)

RETRY_MS = 500
CONFLICT_PAUSE_MS = 50
MAX_TRIES = 20
"""The most attempts at an update while another program keeps changing the node."""

OnUpdated = Callable[[KafkaError | None], None]
"""Called once: with None when the levels are what was asked for, else with the reason."""


class FeatureStore:
    """The node of the features during one controller epoch."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        flows: Flows,
        fence: ControllerFence,
        finalized: Callable[[], FinalizedFeatures],
    ) -> None:
        """`finalized`: the levels as this broker knows them."""
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = flows
        self._watches = NewestWatches(flows)
        self._fence = fence
        self._finalized = finalized
        self._updates = Flows()
        """Updates; they continue after the controller's end, until their outcome is known."""

    def start(self) -> None:
        """Make the node where it is missing, and make it again whenever it is."""
        self._flows.start(self._keep())

    def update(
        self,
        updates: Sequence[FeatureUpdate],
        done: OnUpdated,
        *,
        check_allowed: Callable[[], None],
        validate_only: bool,
    ) -> None:
        """Set the levels, all or none. `check_allowed` raises KafkaError where the client may not
        have them changed any more."""
        self._updates.start(self._update(updates, check_allowed, validate_only), done)

    def _keep(self) -> Flow[None]:
        while True:
            watch = self._watches.newest(FeatureZNode.PATH, self.start)
            found = yield from self._zookeeper.get(FeatureZNode.PATH, watch)
            if found.ok and _levels(found) is not None:
                return
            if found.ok or found.status is ZkStatus.NO_NODE:
                levels = self._finalized().levels
                log.info("%s is missing or unreadable: written anew", FeatureZNode.PATH)
                written = yield from self._write(found, levels)
                if written.ok:
                    continue
                self._fence.verify()
            yield from pause(self._scheduler, RETRY_MS)

    def _write(self, found: ZkReply, levels: Mapping[str, int]) -> Flow[ZkReply]:
        """Write the node, on the condition that it is still as it was found."""
        data = FeatureZNode(levels=levels).encode()
        change = ZkOp(kind=ZkOpKind.CREATE, path=FeatureZNode.PATH, data=data)
        if found.stat is not None:
            change = replace(change, kind=ZkOpKind.SET, version=found.stat.version)
        return (yield from self._zookeeper.multi([self._fence.check, change]))

    def _update(
        self,
        updates: Sequence[FeatureUpdate],
        check_allowed: Callable[[], None],
        validate_only: bool,
    ) -> Flow[KafkaError | None]:
        for _ in range(MAX_TRIES):
            found = yield from self._zookeeper.get(FeatureZNode.PATH)
            brokers = yield from self._supported_by_brokers()
            present = _levels(found)
            if brokers is None or (present is None and found.status is ZkStatus.UNKNOWN):
                return _failed("ZooKeeper did not answer: nothing is changed; try again")
            if present is None:
                # It is written anew in this moment.
                yield from pause(self._scheduler, CONFLICT_PAUSE_MS)
                continue
            try:
                check_allowed()
                wanted = updated_levels(present, updates, brokers)
            except KafkaError as refusal:
                return refusal.as_outcome()
            if validate_only or FeatureZNode(levels=wanted) == FeatureZNode(levels=present):
                return None
            written = yield from self._write(found, wanted)
            if written.ok:
                log.info("features changed levels=%s", wanted)
                return None
            if written.status is ZkStatus.UNKNOWN:
                return _failed(
                    "ZooKeeper did not answer: the levels may or may not be changed; describe the "
                    "features to see"
                )
            if (yield from self._fence.is_current()) is False:
                return KafkaError(code=ErrorCode.NOT_CONTROLLER)
            yield from pause(self._scheduler, CONFLICT_PAUSE_MS)
        return _failed(f"{FeatureZNode.PATH} is being changed by others all the time: try again")

    def _supported_by_brokers(self) -> Flow[dict[BrokerId, Supported] | None]:
        """Read what each live broker supports; None where ZooKeeper did not answer."""
        listed = yield from self._zookeeper.children(BrokerIdZNode.PARENT)
        if not listed.ok:
            return None
        ids = {BrokerIdZNode.path(each): each for each in BrokerIdZNode.ids(listed.children)}
        replies = yield from self._zookeeper.get_each(ids)
        if any(not reply.ok and not reply.is_absent for reply in replies.values()):
            return None
        return {
            ids[path]: _supported(ids[path], reply)
            for path, reply in replies.items()
            if reply.stat is not None and reply.stat.ephemeral_owner
        }


def _levels(found: ZkReply) -> Mapping[str, int] | None:
    """Return the levels in the node; None where there are none that can be read."""
    if not found.ok:
        return None
    try:
        return FeatureZNode.decode(found.data).levels
    except ZnodeFormatError as failure:
        log.error("features not read: %s", failure)
        return None


def _supported(broker: BrokerId, reply: ZkReply) -> Supported:
    """Return what a broker supports: as little as any where its registration can't be read."""
    try:
        return BrokerIdZNode.decode(broker, reply.data).supported
    except ZnodeFormatError:
        return SUPPORTED_BY_FIRST_RELEASE


def _failed(text: str) -> KafkaError:
    return KafkaError(text, ErrorCode.FEATURE_UPDATE_FAILED)
