"""`headrace up --secure`: TLS by the cluster's own authority, log-ins by SCRAM, access rules.

    D/tls/ca.pem                    the authority that clients trust
    D/tls/ca.key, broker-<id>.pem   keys
    D/tls/zookeeper/                an authority and certificates of ZooKeeper and its clients
    D/tls/zookeeper.credentials     by which brokers write to ZooKeeper, and nobody else
    D/admin.properties              the super user `admin`, as clients and commands read it
    D/app.properties                the user `app`, which may do nothing until it is allowed to
    D/admin-java.properties, app-java.properties    both, as Kafka's clients for Java read them

All files are for their owner alone. Whoever reaches a ZooKeeper can end the sessions of brokers, so
its authority is another one than that of clients and brokers. Users are written into ZooKeeper
before the first broker starts, since brokers log in to each other, too.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from storage_engine.core.security.scram_credential import ScramMechanism
from storage_engine.core.settings.properties import parse_properties
from storage_engine.tools.local.broker_settings import properties_lines, read_settings
from storage_engine.tools.local.certificates import (
    AUTHORITY_DAYS,
    make_authority,
    make_certificate,
)
from storage_engine.tools.local.cluster_file import (
    ADMIN,
    APP,
    CA_FILE,
    MECHANISM,
    PROTOCOL,
    SECURITY,
    TLS_FOLDER,
    BrokerEntry,
    ClusterFile,
)
from storage_engine.tools.local.cluster_plan import ZOOKEEPER_DIR
from storage_engine.tools.local.secret_files import write_whole
from storage_engine.tools.user_nodes import UserNodes, credentials_of
from storage_engine.tools.zookeeper_tls import load_zookeeper_tls
from storage_engine.zookeeper.access import CREDENTIALS_KEY, load_access
from storage_engine.zookeeper.embedded import HOST as ZOOKEEPER_HOST
from storage_engine.zookeeper.server.config import ServerTls

BROKER_USER = "broker"
PASSWORD_BYTES = 24

_ZOOKEEPER_CREDENTIALS = f"{TLS_FOLDER}/zookeeper.credentials"
_ZOOKEEPER_TLS = f"{TLS_FOLDER}/zookeeper"
_ZOOKEEPER_SERVER, _ZOOKEEPER_CLIENT = "server.pem", "client.pem"
_JAAS_KEY = f"listener.name.{PROTOCOL.lower()}.{MECHANISM.value.lower()}.sasl.jaas.config"
_HEADING = (
    "# Written by 'headrace up --secure'. It has a password: keep it to yourself.\n"
    "# For --command-config, for clients by librdkafka and for Headrace's own.\n"
)
_JAVA_HEADING = (
    "# Written by 'headrace up --secure'. It has a password: keep it to yourself.\n"
    "# For Kafka's tools and clients for Java.\n"
)


@dataclass(frozen=True, slots=True)
class SecuredCluster:
    """The files of one directory."""

    directory: Path

    def prepare(self, brokers: Sequence[BrokerEntry]) -> None:
        """Makes keys, certificates and passwords that are not there yet."""
        tls, zookeeper = self.directory / TLS_FOLDER, self.directory / _ZOOKEEPER_TLS
        for folder in (tls, zookeeper):
            folder.mkdir(exist_ok=True)
            make_authority(folder)
        kept = (*self.directory.glob("broker-*"), self.directory / ZOOKEEPER_DIR)
        for folder in (tls, zookeeper, *kept):
            if folder.is_dir():
                folder.chmod(0o700)
        for entry in brokers:
            make_certificate(tls, _certificate_file(entry), entry.host)
        for name in (_ZOOKEEPER_SERVER, _ZOOKEEPER_CLIENT):
            make_certificate(zookeeper, name, ZOOKEEPER_HOST, days=AUTHORITY_DAYS)
        credentials = self.directory / _ZOOKEEPER_CREDENTIALS
        if not credentials.exists():
            write_whole(credentials, f"{BROKER_USER}:{_new_password()}\n".encode())

    @property
    def zookeeper_tls(self) -> ServerTls:
        """The certificate files of the cluster's own ZooKeeper."""
        folder = self.directory / _ZOOKEEPER_TLS
        return ServerTls(keystore=folder / _ZOOKEEPER_SERVER, truststore=folder / CA_FILE)

    def broker_settings(
        self, brokers: Sequence[BrokerEntry], *, has_own_zookeeper: bool
    ) -> dict[int, dict[str, str]]:
        """Return by broker the secure defaults for settings that `server.properties` lacks."""
        tls = self.directory / TLS_FOLDER
        password = self._broker_password(brokers) or _new_password()
        of_all = {
            "security.inter.broker.protocol": PROTOCOL,
            "ssl.keystore.type": "PEM",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(tls / CA_FILE),
            "sasl.enabled.mechanisms": ",".join(each.value for each in ScramMechanism),
            "sasl.mechanism.inter.broker.protocol": MECHANISM.value,
            _JAAS_KEY: _login(BROKER_USER, password),
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": f"User:{BROKER_USER};User:{ADMIN}",
            CREDENTIALS_KEY: str(self.directory / _ZOOKEEPER_CREDENTIALS),
            "zookeeper.set.acl": "true",
            **(self._zookeeper_settings() if has_own_zookeeper else {}),
        }
        return {
            entry.id: {**of_all, "ssl.keystore.location": str(tls / _certificate_file(entry))}
            for entry in brokers
        }

    def _zookeeper_settings(self) -> dict[str, str]:
        folder = self.directory / _ZOOKEEPER_TLS
        return {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.keystore.location": str(folder / _ZOOKEEPER_CLIENT),
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.truststore.location": str(folder / CA_FILE),
        }

    def write_client_files(self, bootstrap_servers: str) -> None:
        """Write the files of `admin` and `app`; existing passwords stay."""
        for user, name in ((ADMIN, SECURITY.admin), (APP, SECURITY.app)):
            path = self.directory / name
            password = self._client_password(path) or _new_password()
            settings = {
                "bootstrap.servers": bootstrap_servers,
                "security.protocol": PROTOCOL,
                "sasl.mechanism": MECHANISM.value,
                "sasl.username": user,
                "sasl.password": password,
                "ssl.ca.location": str(self.directory / SECURITY.ca),
            }
            write_whole(path, (_HEADING + properties_lines(settings)).encode())
            in_java = {
                "bootstrap.servers": bootstrap_servers,
                "security.protocol": PROTOCOL,
                "sasl.mechanism": MECHANISM.value,
                "sasl.jaas.config": _login(user, password),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.directory / SECURITY.ca),
            }
            text = _JAVA_HEADING + properties_lines(in_java)
            write_whole(path.with_name(f"{user}-java.properties"), text.encode())

    def write_users(self, state: ClusterFile) -> None:
        """Write users into ZooKeeper, if the brokers' user is not there yet: a user that somebody
        has removed since stays removed."""
        passwords = {BROKER_USER: self._broker_password(state.brokers)}
        for user, name in ((ADMIN, SECURITY.admin), (APP, SECURITY.app)):
            passwords[user] = self._client_password(self.directory / name)
        access = load_access(
            self.directory / _ZOOKEEPER_CREDENTIALS,
            set_acl=True,
            tls=load_zookeeper_tls(self.directory / state.brokers[0].config),
        )
        with UserNodes.connected(state.zookeeper, access) as users:
            if BROKER_USER in users:
                return
            # The brokers' user last: it shows that all users are there.
            for user in (APP, ADMIN, BROKER_USER):
                password = passwords[user]
                if password is not None:
                    users.set(user, credentials_of(password, ScramMechanism))

    def _broker_password(self, brokers: Sequence[BrokerEntry]) -> str | None:
        """Return the password of the first broker that has one; None without any."""
        for entry in brokers:
            text = read_settings(self.directory / entry.config).get(_JAAS_KEY)
            if text:
                return _password_in(text)
        return None

    def _client_password(self, path: Path) -> str | None:
        return _settings_in(path).get("sasl.password")


def _settings_in(path: Path) -> Mapping[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return parse_properties(text, source=str(path))


def _certificate_file(entry: BrokerEntry) -> str:
    return f"broker-{entry.id}.pem"


def _new_password() -> str:
    return secrets.token_urlsafe(PASSWORD_BYTES)


def _login(user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{password}";'


def _password_in(login: str) -> str | None:
    from storage_engine.core.security.jaas import parse_jaas

    return parse_jaas(login, key=_JAAS_KEY).options.get("password")
