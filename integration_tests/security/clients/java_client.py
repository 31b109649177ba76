"""Kafka's own client for Java: one JVM for all cells, which take it less than its start."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from integration_tests.security.clients import cells
from integration_tests.security.clients.clients_cluster import Way
from integration_tests.security.secured_cluster import properties_file
from integration_tests.support.java_clients import SHORT_LIVED, compiled

SOURCE = Path(__file__).with_name("JavaLogIns.java")
LIMIT_S = 500.0
MODULES = "org.apache.kafka.common.security"

SAYS = {
    cells.WRONG_SECRET: "SaslAuthenticationException: (authentication failed|.*invalid_token)",
    cells.UNKNOWN_BROKER: "unable to find valid certification path",
    cells.OTHER_HOST: "No subject alternative names matching IP address 127.0.0.1",
    cells.EXPIRED_BROKER: "CertificateExpiredException",
    cells.NO_CERTIFICATE: "Received fatal alert: (certificate_required|handshake_failure)",
    cells.UNKNOWN_CLIENT: "Received fatal alert: unknown_ca",
    cells.EXPIRED_CLIENT: "Received fatal alert: certificate_expired",
}


class JavaClient:
    """The program, compiled, and a folder for its files."""

    def __init__(self, version: str, folder: Path) -> None:
        self._folder = folder
        self._class_path = compiled(SOURCE, version, folder)

    def outcomes(self, ways: Mapping[str, Way], *, for_ms: int = 0) -> dict[str, str]:
        """What it says of each."""
        files = {
            str(self._file(number, way)): name for number, (name, way) in enumerate(ways.items())
        }
        done = subprocess.run(
            ["java", *SHORT_LIVED, "-cp", self._class_path, "JavaLogIns", str(for_ms), *files],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said = (line.partition(": ") for line in done.stdout.splitlines())
        return {files[file]: text for file, _, text in said if file in files}

    def _file(self, number: int, way: Way) -> Path:
        settings = {
            "bootstrap.servers": way.servers,
            "security.protocol": way.protocol,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": way.authority_file,
        }
        if way.certificate_file:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self._key_store(Path(way.certificate_file))),
            }
        if way.mechanism:
            settings["sasl.mechanism"] = way.mechanism
            settings["sasl.jaas.config"] = self._jaas(number, way)
        if way.mechanism == "OAUTHBEARER":
            settings["sasl.login.callback.handler.class"] = "JavaLogIns$TokenOfFile"
        return properties_file(self._folder / f"{number}.properties", settings)

    def _jaas(self, number: int, way: Way) -> str:
        user = f'username="{way.user}" password="{way.password}"'
        if way.mechanism == "PLAIN":
            return f"{MODULES}.plain.PlainLoginModule required {user};"
        if way.mechanism != "OAUTHBEARER":
            return f"{MODULES}.scram.ScramLoginModule required {user};"
        token = self._folder / f"{number}.token"
        token.write_text(way.token)
        return f'{MODULES}.oauthbearer.OAuthBearerLoginModule required file="{token}";'

    def _key_store(self, file: Path) -> Path:
        """The key in the one form of PEM that Java reads, and the chain."""
        data = file.read_bytes()
        key = load_pem_private_key(data, None)
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        store = self._folder / f"java-{file.name}"
        store.write_bytes(text + data[data.index(b"-----BEGIN CERTIFICATE") :])
        return store
