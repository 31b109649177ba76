"""TLS towards ZooKeeper as a file of properties says: a broker's, or one that has only this."""

import ssl
from pathlib import Path

from storage_engine.client.settings import read_properties
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.zookeeper_settings import ZooKeeperTls


def load_zookeeper_tls(file: Path) -> ssl.SSLContext | None:
    """Return the TLS context that a file asks for; None without TLS. ConfigError names the file."""
    texts = read_properties(file)
    try:
        tls = ZooKeeperTls.of_texts(texts)
        if tls is None:
            return None
        from storage_engine.net.tls.contexts import zookeeper_context

        return zookeeper_context(tls)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None
