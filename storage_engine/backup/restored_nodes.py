"""Writes ZooKeeper's part of a restored cluster, once the logs of all of its brokers are written.

    /headrace/restore         which backup, to which brokers, since which epoch of controllers
    /headrace/restore/<id>    the logs of that broker are written

The first that restores creates the node, each broker's logs have a child, and the last creates the
topics and all else, then removes the node. So each machine restores the brokers that it has. No
broker may run meanwhile: one that did would put its logs aside, since nobody knows their topics. It
would raise the epoch of controllers, by which that is noticed.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.interfaces import IAsyncResult as AsyncResult

from storage_engine.backup.errors import BackupError
from storage_engine.backup.manifest import Manifest
from storage_engine.backup.placement import Assignments
from storage_engine.backup.znodes import Nodes
from storage_engine.core.ids import NO_LEADER, BrokerId, ControllerEpoch, LeaderEpoch
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.znodes.cluster_znodes import (
    INITIAL_CONTROLLER_EPOCH,
    BrokerIdZNode,
    ClusterIdZNode,
    ControllerEpochZNode,
    FeatureZNode,
    ProducerIdBlockZNode,
)
from storage_engine.zookeeper.znodes.topic_znodes import (
    PERSISTENT_PATHS,
    PartitionStateZNode,
    PartitionsZNode,
    TopicZNode,
)

PATH = "/headrace/restore"

EPOCHS_APART = 1_000
"""How far the leader epochs of the restored cluster lie above those of the backup. The cluster that
was backed up may have gone on under the epochs between: who has read what it wrote then finds that
this log has no such epoch, and where its own records end (KIP-320)."""

_WINDOW = 500
"""Requests that are under way at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    backup_id: str
    brokers: tuple[BrokerId, ...]
    controller_epoch: int

    def encode(self) -> bytes:
        document = {
            "backup_id": self.backup_id,
            "brokers": list(self.brokers),
            "controller_epoch": self.controller_epoch,
        }
        return json.dumps(document).encode()


class RestoredNodes:
    def __init__(
        self, client: KazooClient, access: ZooKeeperAccess, brokers: Sequence[BrokerId]
    ) -> None:
        """`brokers`: all of the restored cluster."""
        self._client = client
        self._access = access
        self._brokers = tuple(sorted(brokers))

    def begin(self, manifest: Manifest) -> None:
        """Note that a restore has begun, or find that it goes on. BackupError where brokers run,
        topics exist, or another backup is being restored."""
        live = self._children(BrokerIdZNode.PARENT)
        if live:
            raise BackupError(
                f"broker {live[0]} runs: stop all brokers of the cluster before it is restored"
            )
        plan = _Plan(
            backup_id=manifest.backup_id,
            brokers=self._brokers,
            controller_epoch=self._controller_epoch(),
        )
        known = self._known_plan()
        if known is None:
            if topics := self._children(TopicZNode.PARENT):
                raise BackupError(
                    f"the cluster holds topics ({topics[0]}): a backup is restored into an empty "
                    "cluster only; give ZooKeeper an empty data directory, or another chroot"
                )
            self._create(PATH, plan.encode())
            return
        if known.controller_epoch != plan.controller_epoch:
            raise BackupError(
                f"brokers have run since the restore has begun: remove {PATH} and all topics from "
                "ZooKeeper, empty the log dirs, and restore again"
            )
        if known != plan:
            raise BackupError(
                f"another restore is under way, of backup {known.backup_id} to the brokers "
                f"{', '.join(map(str, known.brokers))}: end it, or remove {PATH} from ZooKeeper, "
                "empty the log dirs, and restore again"
            )

    def has_logs(self, broker: BrokerId) -> bool:
        """Whether the logs of a broker are written."""
        return self._client.exists(f"{PATH}/{broker}") is not None

    def note_logs(self, broker: BrokerId) -> None:
        self._create(f"{PATH}/{broker}", b"")

    def missing(self) -> list[BrokerId]:
        """The brokers whose logs are not written yet."""
        return [each for each in self._brokers if not self.has_logs(each)]

    def finish(self, manifest: Manifest, nodes: Nodes, assignments: Assignments) -> None:
        """Write everything. May be repeated after it was cut short."""
        for path in PERSISTENT_PATHS:
            self._create(path, b"")
        self._create(ClusterIdZNode.PATH, ClusterIdZNode.random().encode())
        self._create(
            ControllerEpochZNode.PATH, ControllerEpochZNode.encode(INITIAL_CONTROLLER_EPOCH)
        )
        self._create_all(_plain_nodes(nodes))
        if (features := nodes.get(FeatureZNode.PATH)) is not None:
            self._put(FeatureZNode.PATH, features)
        self._raise_producer_ids(nodes)
        self._create_all(_topic_nodes(manifest, assignments))
        for each in self._brokers:
            self._client.delete(f"{PATH}/{each}")
        self._client.delete(PATH)

    def _raise_producer_ids(self, nodes: Nodes) -> None:
        """No id may be given out that the restored logs know."""
        path = ProducerIdBlockZNode.PATH
        if path not in nodes:
            return
        try:
            present = ProducerIdBlockZNode.decode(self._client.get(path)[0])
        except NoNodeError:
            present = None
        block = ProducerIdBlockZNode.decode(nodes[path])
        if present is None or present.last_id < block.last_id:
            self._put(path, nodes[path])

    def _known_plan(self) -> _Plan | None:
        try:
            data, _ = self._client.get(PATH)
        except NoNodeError:
            return None
        try:
            document = json.loads(data)
            return _Plan(
                backup_id=str(document["backup_id"]),
                brokers=tuple(BrokerId(int(each)) for each in document["brokers"]),
                controller_epoch=int(document["controller_epoch"]),
            )
        except (ValueError, KeyError, TypeError):
            raise BackupError(
                f"{PATH} in ZooKeeper was not written by a restore: remove it, empty the log dirs, "
                "and restore again"
            ) from None

    def _controller_epoch(self) -> int:
        try:
            return ControllerEpochZNode.decode(self._client.get(ControllerEpochZNode.PATH)[0])
        except NoNodeError:
            return INITIAL_CONTROLLER_EPOCH

    def _children(self, path: str) -> list[str]:
        try:
            return sorted(self._client.get_children(path))
        except NoNodeError:
            return []

    def _create(self, path: str, data: bytes) -> None:
        """A node that is there stays as it is."""
        acl = self._access.acl_of(path)
        try:
            self._client.create(path, data, acl=acl, makepath=True)
        except NodeExistsError:
            return

    def _put(self, path: str, data: bytes) -> None:
        self._create(path, data)
        self._client.set(path, data)

    def _create_all(self, nodes: Iterable[tuple[str, bytes]]) -> None:
        """Create nodes, parents first; those that are there stay as they are."""
        under_way = []
        for path, data in nodes:
            acl = self._access.acl_of(path)
            under_way.append(self._client.create_async(path, data, acl=acl, makepath=True))
            if len(under_way) >= _WINDOW:
                _await(under_way)
                under_way = []
        _await(under_way)


def _await(under_way: "list[AsyncResult]") -> None:
    for each in under_way:
        try:
            each.get()
        except NodeExistsError:
            continue


def _plain_nodes(nodes: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    """The nodes that are as the backup has them."""
    apart = (FeatureZNode.PATH, ProducerIdBlockZNode.PATH)
    return [
        (path, data)
        for path, data in sorted(nodes.items())
        if path not in apart and not path.startswith(f"{TopicZNode.PARENT}/")
    ]


def _topic_nodes(manifest: Manifest, assignments: Assignments) -> Iterable[tuple[str, bytes]]:
    """The topics: without leaders, and all replicas in sync, since all hold the same."""
    for topic in manifest.topics:
        assignment = assignments[topic.name]
        node = TopicZNode(topic=topic.name, assignment=assignment, topic_id=UUID(topic.topic_id))
        yield TopicZNode.path(topic.name), node.encode()
        yield PartitionsZNode.path(topic.name), b""
        epochs = {each.partition: each.leader_epoch for each in topic.partitions}
        for number, replicas in assignment.items():
            state = PartitionStateZNode(
                leader=NO_LEADER,
                leader_epoch=LeaderEpoch(max(0, epochs.get(number, 0)) + EPOCHS_APART),
                isr=replicas,
                controller_epoch=ControllerEpoch(INITIAL_CONTROLLER_EPOCH),
            )
            yield PartitionStateZNode.partition_path(topic.name, number), b""
            yield PartitionStateZNode.path(topic.name, number), state.encode()


def topics_in(nodes: Mapping[str, bytes]) -> dict[str, TopicZNode]:
    """The topics of a backup, as ZooKeeper had them."""
    parent = f"{TopicZNode.PARENT}/"
    return {
        path.removeprefix(parent): TopicZNode.decode(path.removeprefix(parent), data)
        for path, data in nodes.items()
        if path.startswith(parent)
    }
