"""Restores a backup into an empty cluster whose brokers do not run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kazoo.client import KazooClient

from storage_engine.backup.errors import BackupError, DamagedError
from storage_engine.backup.manifest import Manifest
from storage_engine.backup.placement import Assignments, placed
from storage_engine.backup.restored_logs import RestoredLogs, Tell
from storage_engine.backup.restored_nodes import RestoredNodes, topics_in
from storage_engine.backup.store import BackupStore, checked_pieces
from storage_engine.backup.znodes import Nodes, decode_nodes
from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.topic_config import log_config_for
from storage_engine.core.ids import BrokerId
from storage_engine.log.dirs.log_manager import LogManagerSettings
from storage_engine.log.log_config import LogConfig
from storage_engine.zookeeper.access import ZooKeeperAccess
from storage_engine.zookeeper.znodes.cluster_znodes import ConfigZNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    partitions: int
    """Replicas that were written here."""
    missing: tuple[BrokerId, ...]
    """The brokers whose logs are still to be written, elsewhere; empty: the cluster is whole."""


def read_nodes_of(store: BackupStore, manifest: Manifest) -> Nodes:
    return decode_nodes(manifest.znodes.name, b"".join(checked_pieces(store, manifest.znodes)))


def restore(
    store: BackupStore,
    manifest: Manifest,
    configs: Sequence[BrokerConfig],
    brokers: Sequence[BrokerId],
    client: KazooClient,
    access: ZooKeeperAccess,
    tell: Tell,
) -> Restored:
    """Write the logs of the brokers with these configurations, and, when those of all `brokers` are
    there, ZooKeeper's part. Everything is checked before anything is written."""
    nodes = read_nodes_of(store, manifest)
    assignments = _assignments(manifest, nodes, brokers)
    parts = {BrokerId(each.broker_id): _logs_of(each, nodes, tell) for each in configs}
    if strangers := sorted(parts.keys() - set(brokers)):
        raise BackupError(
            f"broker {strangers[0]} is not among --brokers: name all brokers of the new cluster"
        )
    target = RestoredNodes(client, access, brokers)
    for broker, logs in parts.items():
        if not target.has_logs(broker):
            logs.check_empty()
    target.begin(manifest)
    written = 0
    for broker, logs in parts.items():
        if not target.has_logs(broker):
            written += logs.write(store, manifest, assignments)
            target.note_logs(broker)
        logs.unmark()
    missing = target.missing()
    if not missing:
        tell("writing ZooKeeper's part")
        target.finish(manifest, nodes, assignments)
    return Restored(partitions=written, missing=tuple(missing))


def _assignments(manifest: Manifest, nodes: Nodes, brokers: Sequence[BrokerId]) -> Assignments:
    assignments = placed(topics_in(nodes), brokers)
    for topic in manifest.topics:
        for partition in topic.partitions:
            if partition.partition not in assignments.get(topic.name, {}):
                raise DamagedError(
                    f"backup {manifest.number} is damaged: it has {topic.name}-"
                    f"{partition.partition}, which its copy of ZooKeeper does not know; take "
                    "another backup (headrace backup --list)"
                )
    return assignments


def _logs_of(config: BrokerConfig, nodes: Mapping[str, bytes], tell: Tell) -> RestoredLogs:
    settings = LogManagerSettings(
        log_dirs=config.log_dirs,
        broker_id=config.broker_id,
        default_config=log_config_for(config, {}),
        reserve_bytes=config.integer("log.dir.min.free.bytes"),
    )

    def config_of(topic: str) -> LogConfig:
        path = ConfigZNode.topic_path(topic)
        data = nodes.get(path)
        overrides = ConfigZNode.decode(path, data).config if data else {}
        return log_config_for(config, overrides)

    return RestoredLogs(settings, config_of, tell)
