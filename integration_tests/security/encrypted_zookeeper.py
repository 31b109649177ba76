"""A ZooKeeper that is spoken to by TLS alone, and asks for certificates."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark

from integration_tests.security.tls_files import TlsFiles
from integration_tests.support.cluster_support import wait_until
from storage_engine.net.tls.stores import KeyStoreSettings, load_key_store
from storage_engine.tools.local.free_ports import find_free_port
from storage_engine.zookeeper.embedded import class_path, jvm_options
from storage_engine.zookeeper.java import find_java

HOST = "127.0.0.1"
_MAIN_CLASS = "org.apache.zookeeper.server.ZooKeeperServerMain"
_CODE = "org.apache.zookeeper.server.NettyServerCnxnFactory"
NAME = "localhost"
"""The name that its certificate has."""


class EncryptedZooKeeper:
    """Has one port."""

    def __init__(self, folder: Path, files: TlsFiles) -> None:
        self._folder = folder
        self._files = files
        self.port = find_free_port(HOST)
        self._process: subprocess.Popen[bytes] | None = None

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
        (self._folder / "data").mkdir(parents=True, exist_ok=True)
        own = self._folder / "own.pem"
        # Java reads keys in PKCS#8 alone.
        store = load_key_store(KeyStoreSettings(location=certificate))
        own.write_bytes(store.chain_pem + store.key_pem)
        config = self._folder / "zoo.cfg"
        config.write_text(
            "tickTime=200\nminSessionTimeout=1000\nmaxSessionTimeout=60000\n"
            "admin.enableServer=false\nmaxClientCnxns=0\n"
            f"dataDir={self._folder / 'data'}\nserverCnxnFactory={_CODE}\n"
            f"secureClientPort={self.port}\nsecureClientPortAddress={HOST}\n"
            f"ssl.keyStore.location={own}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self._files.authority_file}\nssl.trustStore.type=PEM\n"
            "ssl.clientAuth=need\nssl.hostnameVerification=false\n"
        )
        netty = sorted((Path(pyspark.__file__).parent / "jars").glob("netty-*.jar"))
        options = [*jvm_options(self._folder, unsafe_no_fsync=True), "-Xmx128m"]
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    str(find_java()),
                    *options,
                    "-cp",
                    ":".join([class_path(), *map(str, netty)]),
                    _MAIN_CLASS,
                    str(config),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_until(self._listens, "the encrypted ZooKeeper listens")

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def output(self) -> str:
        return (self._folder / "output").read_text(errors="replace")

    def _listens(self) -> bool:
        assert self._process is not None and self._process.poll() is None, self.output()
        try:
            socket.create_connection((HOST, self.port), timeout=1).close()
        except OSError:
            return False
        return True


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
