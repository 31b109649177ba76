"""A ZooKeeper that is spoken to by TLS alone, and asks for certificates."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from integration_tests.security.tls_files import TlsFiles
from storage_engine.net.tls.stores import KeyStoreSettings, load_key_store
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.zookeeper.embedded import HOST, EmbeddedZooKeeper, start_embedded
from storage_engine.zookeeper.server.config import ServerTls

NAME = "localhost"
"""The name that its certificate has."""


class EncryptedZooKeeper:
    """Has one port."""

    def __init__(self, folder: Path, files: TlsFiles) -> None:
        self._folder = folder
        self._files = files
        self.port = find_free_port(HOST)
        self._server: EmbeddedZooKeeper | None = None

    @property
    def connect(self) -> str:
        return f"{NAME}:{self.port}"

    def settings(self, keystore: str) -> dict[str, str]:
        """Of those who connect with that certificate."""
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.keystore.location": keystore,
            "zookeeper.ssl.truststore.location": self._files.authority_file,
        }

    def start(self, certificate: str) -> None:
        """With that certificate; returns when it serves."""
        own = self._folder / "own.pem"
        # Java reads keys in PKCS#8 alone.
        store = load_key_store(KeyStoreSettings(location=certificate))
        own.write_bytes(store.chain_pem + store.key_pem)
        self._server = start_embedded(
            self._folder / "data",
            port=self.port,
            tls=ServerTls(keystore=own, truststore=Path(self._files.authority_file)),
            unsafe_no_fsync=True,
        )

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            self._server = None


@contextlib.contextmanager
def encrypted_zookeeper(
    folder: Path, files: TlsFiles, certificate: str
) -> Iterator[EncryptedZooKeeper]:
    """Gone after the block."""
    server = EncryptedZooKeeper(folder, files)
    try:
        server.start(certificate)
        yield server
    finally:
        server.stop()
