"""Recovers a cluster whose `cluster.json` was lost from the other files in its directory.

The brokers' own files are believed; a directory without brokers is a new cluster.
"""

from dataclasses import replace
from pathlib import Path

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.broker.settings.listener_map import ANY_ADDRESS
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.cluster_file import SECURITY, BrokerEntry, ClusterFile
from storage_engine.tools.local.cluster_plan import HOST, ZOOKEEPER_DIR
from storage_engine.tools.local.metrics_ports import metrics_of


def recover_cluster(directory: Path) -> ClusterFile | None:
    """The stopped cluster that the `broker-<id>/server.properties` describe; None without any."""
    entries: list[BrokerEntry] = []
    zookeepers: set[str] = set()
    for path in directory.glob("broker-*/server.properties"):
        config = BrokerConfig.load(path)
        listener = config.listeners.listening[0]
        host = HOST if listener.host in ANY_ADDRESS else listener.host
        entry = BrokerEntry.for_id(config.broker_id, host, listener.port)
        entry = replace(entry, metrics=metrics_of(config))
        if directory / entry.config != path:
            raise CommandError(
                f"'{path}' has broker.id={config.broker_id}, which belongs into "
                f"'{directory / entry.config}'; correct one of them"
            )
        entries.append(entry)
        zookeepers.add(config.zookeeper_connect)
    if not entries:
        return None
    if len(zookeepers) > 1:
        raise CommandError(
            f"the brokers of '{directory}' have different values of zookeeper.connect: "
            f"{', '.join(sorted(zookeepers))}; correct their server.properties"
        )
    embedded = (directory / ZOOKEEPER_DIR / "zoo.cfg").exists()
    return ClusterFile(
        zookeeper=zookeepers.pop(),
        zookeeper_pid=None,
        zookeeper_dir=ZOOKEEPER_DIR if embedded else None,
        security=SECURITY if (directory / SECURITY.admin).exists() else None,
        brokers=tuple(sorted(entries, key=lambda entry: entry.id)),
    )
