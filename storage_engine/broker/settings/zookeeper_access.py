"""How a broker's settings say that it connects to ZooKeeper."""

from pathlib import Path

from storage_engine.broker.settings.config import BrokerConfig
from storage_engine.zookeeper.access import CREDENTIALS_KEY, ZooKeeperAccess, load_access


def zookeeper_access(config: BrokerConfig) -> ZooKeeperAccess:
    """ConfigError for files that can't be used."""
    file = config.get(CREDENTIALS_KEY)
    tls = None
    if config.zookeeper_tls is not None:
        # Imported only where TLS is configured.
        from storage_engine.net.tls.contexts import zookeeper_context

        tls = zookeeper_context(config.zookeeper_tls)
    return load_access(
        Path(file) if isinstance(file, str) else None,
        set_acl=config.flag("zookeeper.set.acl"),
        tls=tls,
    )
