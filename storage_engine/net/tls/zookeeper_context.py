"""The TLS context towards ZooKeeper, of brokers and of clients.

The stores are read like those of listeners; an error names the setting as it is called towards
ZooKeeper. Source: KIP-515.
"""

import re
import ssl

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.zookeeper_settings import PREFIX, ZooKeeperTls
from storage_engine.net.tls.cipher_suites import chosen_suites
from storage_engine.net.tls.contexts import TlsOptions, client_context
from storage_engine.net.tls.stores import (
    KeyStoreSettings,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)

_NAMES = re.compile(r"(?<![\w./])ssl\.(?=keystore\.|truststore\.|enabled\.|cipher\.)")


def zookeeper_context(tls: ZooKeeperTls) -> ssl.SSLContext:
    """Reads the files. ConfigError of one line for what is wrong with one."""
    try:
        key_store = load_key_store(
            KeyStoreSettings(
                type=tls.keystore_type,
                location=tls.keystore_location,
                password=tls.keystore_password,
            )
        )
        trust_store = load_trust_store(
            TrustStoreSettings(
                type=tls.truststore_type,
                location=tls.truststore_location,
                password=tls.truststore_password,
            )
        )
        options = TlsOptions(protocols=tls.protocols, suites=chosen_suites(tls.cipher_suites))
        context = client_context(
            key_store, trust_store, options, checks_host_name=tls.checks_host_name
        )
    except ConfigError as failure:
        # There is one password towards ZooKeeper, of the file and of the key in it.
        text = str(failure).replace("ssl.key.password", "ssl.keystore.password")
        raise ConfigError(_NAMES.sub(f"{PREFIX}ssl.", text)) from None
    # As in Java, what is in the trust store is trusted, whoever has signed it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
