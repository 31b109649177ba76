"""Settings of the public clients: Kafka's names, checked, each with its default.

An unknown key or an invalid value is an error of one line, before any connection is opened. Values
may be Python's, or text as in a file.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from storage_engine.client.cluster import ISOLATION_LEVELS, Cluster
from storage_engine.client.security.client_security import ClientSecurity
from storage_engine.client.security.security_rows import (
    JAVA_ONLY,
    SECRET_KEYS,
    SECURITY_KEYS,
    SECURITY_SETTINGS,
    Given,
)
from storage_engine.client.security.security_settings import security_of
from storage_engine.core.errors import ConfigError
from storage_engine.core.security.security_protocol import HIDDEN
from storage_engine.core.settings.properties import parse_properties
from storage_engine.core.settings.setting import (
    INT_MAX,
    Setting,
    SettingType,
    SettingValue,
    nearest_key,
)
from storage_engine.core.settings.zookeeper_settings import ZOOKEEPER_TLS_KEYS, ZooKeeperTls

Values = dict[str, Any]
"""Parsed settings by their keys, each of its setting's type; None: not given, without a default."""

FETCH_BYTES = 2 << 20
"""The default size of a fetch: large enough that its fixed cost does not count, small enough that
it stays near the CPU while it is decoded."""


def integer(
    name: str,
    default: int | None,
    doc: str,
    *,
    minimum: int,
    maximum: int = INT_MAX,
    unit: str = "",
) -> Setting:
    """A whole number; both bounds are inclusive."""
    return Setting(
        name=name,
        type=SettingType.INT,
        default=default,
        minimum=minimum,
        maximum=maximum,
        unit=unit,
        doc=doc,
    )


def milliseconds(name: str, default: int | None, doc: str, *, minimum: int = 1) -> Setting:
    """A time."""
    return integer(name, default, doc, minimum=minimum, unit="ms")


def text(name: str, doc: str, default: str | None = None) -> Setting:
    """A text that is not empty."""
    return Setting(name=name, type=SettingType.STRING, default=default, may_be_empty=False, doc=doc)


def boolean(name: str, default: bool | None, doc: str) -> Setting:
    return Setting(name=name, type=SettingType.BOOLEAN, default=default, doc=doc)


def one_of(name: str, choices: Iterable[str], default: str, doc: str) -> Setting:
    """One of some texts."""
    return Setting(
        name=name, type=SettingType.STRING, default=default, choices=tuple(choices), doc=doc
    )


BOOTSTRAP_SERVERS = text(
    "bootstrap.servers",
    "Brokers by which the client finds all others: host:port, several with commas.",
)
CLIENT_ID = text(
    "client.id", "The name by which brokers know the client, in logs and quotas.", "headrace"
)
REQUEST_TIMEOUT_MS = milliseconds(
    "request.timeout.ms", 30_000, "A request without an answer for so long has failed."
)
DEFAULT_API_TIMEOUT_MS = milliseconds(
    "default.api.timeout.ms", 60_000, "A call with all its retries takes so long at most."
)
METADATA_MAX_AGE_MS = milliseconds(
    "metadata.max.age.ms", 300_000, "Topics and leaders are asked for again after so long."
)
FETCH_MAX_BYTES = integer(
    "fetch.max.bytes",
    FETCH_BYTES,
    "A fetch from one leader brings so much at most; a larger first batch still comes.",
    minimum=1,
    maximum=256 << 20,
    unit="bytes",
)


def isolation_level(default: str) -> Setting:
    """`isolation.level`, whose default differs from client to client."""
    return one_of(
        "isolation.level",
        ISOLATION_LEVELS,
        default,
        "Whether records of open and aborted transactions are read, too.",
    )


def by_key(*settings: Setting) -> Mapping[str, Setting]:
    """A client's table: these settings, and those of security, which every client has."""
    return {setting.name: setting for setting in (*settings, *SECURITY_SETTINGS)}


def parse_settings(config: Given, table: Mapping[str, Setting], *, client: str) -> Values:
    """Every setting of `table` with its value. ConfigError names the key and the remedy."""
    if not hasattr(config, "keys"):
        given = type(config).__name__
        raise ConfigError(
            f"the settings of the {client} are a dictionary, such as"
            f" {{'bootstrap.servers': '127.0.0.1:9092'}}, and not a value of type {given}"
        )
    for key in config:
        if key not in table:
            raise ConfigError(f"'{key}' is not a setting of the {client}{_hint(str(key), table)}")
    values: Values = {}
    for key, setting in table.items():
        values[key] = setting.default if key not in config else _parsed(setting, config[key])
    return values


def pop_security(values: Values) -> ClientSecurity:
    """Takes the settings of security out of parsed ones. ConfigError where they do not fit
    together."""
    return security_of({key: values.pop(key) for key in SECURITY_KEYS if key in values})


def pop_zookeeper_tls(values: Values) -> ZooKeeperTls | None:
    """Takes the settings of TLS towards ZooKeeper out of parsed ones. ConfigError where they do not
    fit together."""
    return ZooKeeperTls.of({key: values.pop(key) for key in ZOOKEEPER_TLS_KEYS})


def client_security(config: Given, *, client: str) -> ClientSecurity:
    """The security that `config` asks for, which has no other settings. ConfigError."""
    return pop_security(parse_settings(config, by_key(), client=client))


MAX_FILE_BYTES = 1 << 20


def read_settings_file(path: Path) -> dict[str, str]:
    """The settings of a Java properties file, as command-line tools of Kafka take one. ConfigError
    for a file that can't be read, and for a name of security that is not known; what only Java's
    clients have a use for is left out."""
    settings = read_properties(path)
    for key in settings:
        is_known = key in SECURITY_KEYS or key in JAVA_ONLY
        if key.startswith(("ssl.", "sasl.", "security.")) and not is_known:
            raise ConfigError(f"{path}: '{key}' is not known{_hint(key, SECURITY_KEYS)}")
    return {key: value for key, value in settings.items() if key not in JAVA_ONLY}


def read_properties(path: Path) -> dict[str, str]:
    """All that stands in such a file. ConfigError for one that can't be read."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} can't be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    if len(text) > MAX_FILE_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
    return parse_properties(text, source=str(path))


def _hint(key: str, known: Iterable[str]) -> str:
    near = nearest_key(key, known)
    return f"; did you mean '{near}'?" if near else ""


def _parsed(setting: Setting, value: Any) -> SettingValue:
    text = _text(setting, value)
    parsed = None if text is None else setting.value_of(text)
    if parsed is None:
        is_secret = setting.name in SECRET_KEYS or setting.type is SettingType.PASSWORD
        shown = HIDDEN if is_secret else repr(value)
        raise ConfigError(f"{setting.name} is {shown}; it must be {setting.allowed}")
    return parsed


def _text(setting: Setting, value: Any) -> str | None:
    """A value as it stands in a file; None where it can't stand there."""
    if setting is BOOTSTRAP_SERVERS and isinstance(value, list | tuple):
        return ",".join(str(each) for each in value)
    if setting.type is SettingType.LIST and isinstance(value, list | tuple):
        return ",".join(str(each) for each in value)
    if isinstance(value, bool):
        return str(value).lower() if setting.type is SettingType.BOOLEAN else None
    if isinstance(value, int):
        return str(value) if setting.type in (SettingType.INT, SettingType.LONG) else None
    return value if isinstance(value, str) else None


def cluster_of(values: Values) -> Cluster:
    """Return the cluster that parsed settings name; ConfigError when they name none."""
    if values["bootstrap.servers"] is None:
        raise ConfigError("bootstrap.servers is missing; give host:port of a broker or more")
    return Cluster(
        values["bootstrap.servers"],
        client_id=values["client.id"],
        request_timeout_ms=values["request.timeout.ms"],
        deadline_ms=values["default.api.timeout.ms"],
        security=pop_security(values),
    )
