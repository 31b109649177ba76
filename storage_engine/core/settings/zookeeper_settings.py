"""The part of the table of settings that is about TLS towards ZooKeeper: of brokers, and of clients
that use ZooKeeper. The names are Kafka's.

`ZooKeeperTls` holds their values together. No file is read here. Source: KIP-515.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import Secret
from storage_engine.core.settings.setting import SettingValue, settings_of

PREFIX = "zookeeper."
ENABLE = "zookeeper.ssl.client.enable"
SOCKET = "zookeeper.clientCnxnSocket"

_SOCKETS = "org.apache.zookeeper."
_WITH_TLS = f"{_SOCKETS}ClientCnxnSocketNetty"
_WITHOUT_TLS = f"{_SOCKETS}ClientCnxnSocketNIO"
_VERSIONS = ("TLSv1.2", "TLSv1.3")


ZOOKEEPER_TLS_SETTINGS = settings_of(
    f"""
zookeeper.ssl.client.enable bool false
    With true, ZooKeeper is spoken to by TLS: at its secureClientPort.
zookeeper.clientCnxnSocket str - choices={_WITH_TLS},{_WITHOUT_TLS}
    Java's class for that connection, which Kafka asks for with TLS; may be left out.
zookeeper.ssl.keystore.location str -
    The file with the key and the certificate that ZooKeeper asks for.
zookeeper.ssl.keystore.password password -
    The password of that file: of a PKCS12 store, or of an encrypted key.
zookeeper.ssl.keystore.type str - choices=PEM,PKCS12
    The form of that file (default: what it is).
    Allowed: PEM or PKCS12; keytool -importkeystore -deststoretype PKCS12 makes one of a JKS store
zookeeper.ssl.truststore.location str -
    The file with the authorities whose ZooKeeper is believed (default: the system's).
zookeeper.ssl.truststore.password password -
    The password of a PKCS12 trust store.
zookeeper.ssl.truststore.type str - choices=PEM,PKCS12
    The form of that trust store (default: what the file is).
    Allowed: PEM or PKCS12; keytool -importkeystore -deststoretype PKCS12 makes one of a JKS store
zookeeper.ssl.endpoint.identification.algorithm str HTTPS choices=https,HTTPS,
    With https ZooKeeper's certificate must be for its host name; empty: for any.
    Allowed: https, or empty
zookeeper.ssl.enabled.protocols list TLSv1.2,TLSv1.3 choices=TLSv1.2,TLSv1.3
    The versions of TLS that are spoken to ZooKeeper.
zookeeper.ssl.cipher.suites list -
    The cipher suites, by their standard names or OpenSSL's (default: all that are safe).
"""
)

_BY_NAME = {row.name: row for row in ZOOKEEPER_TLS_SETTINGS}
ZOOKEEPER_TLS_KEYS = frozenset(_BY_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperTls:
    """How ZooKeeper's certificate is verified, and which certificate ZooKeeper is shown."""

    keystore_location: str | None = None
    keystore_type: str | None = None
    keystore_password: Secret | None = None
    truststore_location: str | None = None
    truststore_type: str | None = None
    truststore_password: Secret | None = None
    checks_host_name: bool = True
    protocols: tuple[str, ...] = _VERSIONS
    cipher_suites: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, SettingValue]) -> "ZooKeeperTls | None":
        """Return the meaning of the values of all rows; None without TLS. ConfigError for values
        that do not fit together."""
        if not values[ENABLE]:
            for name, row in _BY_NAME.items():
                if name != SOCKET and values[name] != row.default:
                    raise ConfigError(f"{name} has no effect without {ENABLE}=true: set both")
            return None
        if values[SOCKET] == _WITHOUT_TLS:
            raise ConfigError(
                f"{SOCKET}={_WITHOUT_TLS} knows no TLS, but {ENABLE}=true: leave it out, or set "
                f"{_WITH_TLS}"
            )
        return cls(
            keystore_location=_str(values["zookeeper.ssl.keystore.location"]),
            keystore_type=_str(values["zookeeper.ssl.keystore.type"]),
            keystore_password=_secret(values["zookeeper.ssl.keystore.password"]),
            truststore_location=_str(values["zookeeper.ssl.truststore.location"]),
            truststore_type=_str(values["zookeeper.ssl.truststore.type"]),
            truststore_password=_secret(values["zookeeper.ssl.truststore.password"]),
            checks_host_name=bool(values["zookeeper.ssl.endpoint.identification.algorithm"]),
            protocols=_items(values["zookeeper.ssl.enabled.protocols"]) or _VERSIONS,
            cipher_suites=_items(values["zookeeper.ssl.cipher.suites"]),
        )

    @classmethod
    def of_texts(cls, texts: Mapping[str, str]) -> "ZooKeeperTls | None":
        """Apply `of` to the texts of a properties file; other keys are ignored. ConfigError."""
        return cls.of(
            {
                name: row.parse(texts[name])
                if texts.get(name) or (name in texts and "" in row.choices)
                else row.default
                for name, row in _BY_NAME.items()
            }
        )


def _str(value: SettingValue) -> str | None:
    return value if isinstance(value, str) and value else None


def _secret(value: SettingValue) -> Secret | None:
    return value if isinstance(value, Secret) else None


def _items(value: SettingValue) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()
