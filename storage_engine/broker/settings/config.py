"""A broker's configuration: `server.properties` and overrides, checked against the table.

A broker starts only with settings that are known and possible; each mistake is one line. The table
is `core.settings`.

`max.connections.per.ip.overrides`: `host:number,host:number`.

The error for a mistake is one line that names the setting. Source: R-NET3.

The address of a broker's metrics, as its settings have it.
"""

import ipaddress
import logging
import re
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from storage_engine.broker.settings.cordoned_log_dirs import check_cordoned
from storage_engine.broker.settings.listener_map import ListenerKey, ListenerMap, is_listener_key
from storage_engine.broker.settings.sasl_config import SaslConfig
from storage_engine.core.errors import ConfigError
from storage_engine.core.placement import CORDONED_LOG_DIRS
from storage_engine.core.security.authorizer import super_users_of
from storage_engine.core.security.security_protocol import Secret
from storage_engine.core.settings.properties import parse_properties
from storage_engine.core.settings.setting import (
    Setting,
    SettingType,
    SettingValue,
    unknown_key_error,
)
from storage_engine.core.settings.settings import (
    ALIASES,
    ALLOW_IF_NO_RULE,
    AUTHORIZER,
    BY_BROKER_KEY,
    METRICS_HOSTS,
    METRICS_LISTENER,
    METRICS_REMOTE,
    SUPER_USERS,
)
from storage_engine.core.settings.zookeeper_settings import ZOOKEEPER_TLS_KEYS, ZooKeeperTls
from storage_engine.zookeeper.connect_string import ConnectString

log = logging.getLogger(__name__)


OVERRIDES_KEY = "max.connections.per.ip.overrides"


def parse_overrides(entries: Iterable[str]) -> dict[str, int]:
    """Host or address -> connections. ConfigError for another form, and for a repeated host."""
    found: dict[str, int] = {}
    for entry in entries:
        host, _, number = entry.rpartition(":")
        host = host.strip().removeprefix("[").removesuffix("]")
        if not host or not number.strip().isdecimal():
            raise ConfigError(f"{OVERRIDES_KEY}={entry}: must be host:number, e.g. 10.0.0.7:200")
        if host in found:
            raise ConfigError(f"{OVERRIDES_KEY}: {host} is listed twice")
        found[host] = int(number)
    return found


def by_address(overrides: dict[str, int]) -> dict[str, int]:
    """Replace each host name by all of its addresses. Raises ConfigError for a name without one."""
    found = {}
    for host, number in overrides.items():
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError as error:
            raise ConfigError(
                f"{OVERRIDES_KEY}={host}:{number}: {host} has no address: {error}"
            ) from None
        found.update({str(address[4][0]): number for address in addresses})
    return found


_ADDRESS_FORM = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:/\s]+):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    host: str
    port: int
    """0: any free port."""
    names: tuple[str, ...]
    """The host names that requests may use, beside addresses and localhost."""

    @classmethod
    def of(cls, text: str, *, is_remote_allowed: bool, names: tuple[str, ...]) -> "MetricsConfig":
        """Raises ConfigError for anything but an address, or for one that other machines reach
        where that is not allowed."""
        match = _ADDRESS_FORM.fullmatch(text.strip())
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(f"{METRICS_LISTENER}={text}: must be HOST:PORT, e.g. 127.0.0.1:9308")
        host = match["host"].strip("[]")
        if not is_remote_allowed and not _is_loopback(host):
            raise ConfigError(
                f"{METRICS_LISTENER}={text}: other machines can reach that address, and metrics "
                f"need no log-in; use 127.0.0.1, or set {METRICS_REMOTE}=true"
            )
        return cls(host=host, port=int(match["port"]), names=(*names, socket.gethostname()))


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


__all__ = [
    "BrokerConfig",
    "check_broker_setting",
    "check_relations",
    "log_without_effect",
    "parse_properties",
]

_EMPTY_IS_ABSENT = frozenset({SettingType.STRING, SettingType.LIST, SettingType.PASSWORD})


class TypedReads(ABC):
    """Typed access to settings: to ask for another type than the table has is a mistake."""

    __slots__ = ()

    @abstractmethod
    def get(self, key: str) -> SettingValue:
        """Raises KeyError for a key that is in no table. With a listener's prefix: the value for
        that listener."""

    def integer(self, key: str) -> int:
        value = self.get(key)
        assert isinstance(value, int), key
        return value

    def flag(self, key: str) -> bool:
        value = self.get(key)
        assert isinstance(value, bool), key
        return value

    def text(self, key: str) -> str:
        value = self.get(key)
        assert isinstance(value, str), key
        return value

    def items(self, key: str) -> tuple[str, ...]:
        """The items of a list; empty when it is not set."""
        value = self.get(key)
        assert value is None or isinstance(value, tuple), key
        return value or ()

    def secret(self, key: str) -> Secret | None:
        value = self.get(key)
        assert value is None or isinstance(value, Secret), key
        return value


class BrokerConfig(TypedReads):
    """All settings of a broker, by their names in `server.properties`. Immutable."""

    __slots__ = (
        "_given",
        "_of_listeners",
        "_values",
        "broker_id",
        "listeners",
        "log_dirs",
        "machine",
        "metrics",
        "per_ip_overrides",
        "rack",
        "sasl",
        "zookeeper_connect",
        "zookeeper_tls",
    )

    def __init__(self, given: Mapping[str, str]) -> None:
        """`given`: the texts in the file, aliases allowed."""
        self._values = MappingProxyType(_values(given))
        self._given = frozenset(
            ALIASES[key][0].broker_key if key in ALIASES else key for key in given
        )
        self.broker_id: int = self.integer("broker.id")
        rack = self._values["broker.rack"]
        self.rack: str | None = rack if isinstance(rack, str) else None
        machine = self._values["broker.host.name"]
        self.machine: str | None = machine if isinstance(machine, str) else None
        self.listeners = ListenerMap.of(self)
        self._of_listeners = _of_listeners(given, self.listeners.names)
        self.sasl = SaslConfig.of(self, self.listeners)
        self.per_ip_overrides: dict[str, int] = parse_overrides(self.items(OVERRIDES_KEY))
        self.log_dirs: tuple[Path, ...] = self._log_dirs()
        check_cordoned(self.items(CORDONED_LOG_DIRS), self.log_dirs)
        self.metrics = self._metrics()
        """None: no metrics listener."""
        self.zookeeper_connect: str = str(ConnectString.parse(self.text("zookeeper.connect")))
        self.zookeeper_tls = ZooKeeperTls.of({key: self.get(key) for key in ZOOKEEPER_TLS_KEYS})
        """None: connections to ZooKeeper are not encrypted."""
        check_access(self)
        check_relations(self)

    @classmethod
    def load(cls, path: Path | None, overrides: Mapping[str, str] | None = None) -> "BrokerConfig":
        """Read a file; `overrides` (`--set`) take precedence. None: there is no file."""
        given = {} if path is None else _read(path)
        for key, value in (overrides or {}).items():
            check_broker_setting(key, value)
            # An override must also win over another name of the same setting.
            for other in _names(key, given):
                given.pop(other, None)
            given[key] = value
        try:
            return cls(given)
        except ConfigError as error:
            if path is None:
                raise
            raise ConfigError(f"{path}: {error}") from None

    @classmethod
    def from_mapping(cls, given: Mapping[str, str]) -> "BrokerConfig":
        return cls(given)

    def get(self, key: str) -> SettingValue:
        """The value, given or default; KeyError for a key that is in no table. With the prefix of a
        listener: the value for that listener."""
        if is_listener_key(key):
            parsed = ListenerKey.parse(key)
            return self.of_listener(parsed.listener, parsed.key, parsed.mechanism)
        return self._values[key]

    def optional_integer(self, key: str) -> int | None:
        return None if self.get(key) is None else self.integer(key)

    def number(self, key: str) -> float:
        value = self._values[key]
        assert isinstance(value, int | float), key
        return value

    @property
    def listener_keys(self) -> list[str]:
        """The keys of settings that listeners have of their own."""
        return [str(key) for key in self._of_listeners]

    def of_listener(self, listener: str, key: str, mechanism: str = "") -> SettingValue:
        """The value for a listener, and for one of its SASL mechanisms; by default the broker's."""
        for which in (mechanism, ""):
            own = ListenerKey(listener=listener, mechanism=which, key=key)
            if own in self._of_listeners:
                return self._of_listeners[own]
        return self._values[key]

    def is_set(self, key: str) -> bool:
        """The same as `is_given`, under the name in DynamicConfig."""
        return self.is_given(key)

    @property
    def given(self) -> frozenset[str]:
        """The settings that are given, by the names of the table."""
        return self._given

    def is_given(self, key: str) -> bool:
        """Whether the file or an override sets it, so that its default does not count."""
        if is_listener_key(key):
            return ListenerKey.parse(key) in self._of_listeners
        return key in self._given

    @property
    def replica_fetch_wait_max_ms(self) -> int:
        lag_max_ms = self.integer("replica.lag.time.max.ms")
        return self.optional_integer("replica.fetch.wait.max.ms") or max(1, lag_max_ms // 4)

    @property
    def zookeeper_connection_timeout_ms(self) -> int:
        return self.optional_integer("zookeeper.connection.timeout.ms") or self.integer(
            "zookeeper.session.timeout.ms"
        )

    def _metrics(self) -> MetricsConfig | None:
        address = self.get(METRICS_LISTENER)
        if not isinstance(address, str):
            return None
        return MetricsConfig.of(
            address,
            is_remote_allowed=self.flag(METRICS_REMOTE),
            names=self.items(METRICS_HOSTS),
        )

    def _log_dirs(self) -> tuple[Path, ...]:
        paths = tuple(Path(entry) for entry in self.items("log.dirs"))
        if not paths:
            raise _missing("log.dirs")
        if len({path.absolute() for path in paths}) != len(paths):
            raise ConfigError(
                f"log.dirs={','.join(self.items('log.dirs'))}: a directory is listed twice"
            )
        return paths


def _read(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} can't be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None
    return parse_properties(text, source=str(path))


def check_broker_setting(key: str, text: str) -> SettingValue:
    """The parsed value of one setting of `server.properties`. Raises ConfigError if not valid."""
    if is_listener_key(key):
        return ListenerKey.parse(key).setting.parse(text, key=key)
    if key in ALIASES:
        setting, alias = ALIASES[key]
        value = replace(setting, unit=alias.unit).parse(text, key=key)
        return _aliased(setting, value, alias.factor)
    if key not in BY_BROKER_KEY:
        raise unknown_key_error(key, (*BY_BROKER_KEY, *ALIASES), what="setting")
    return BY_BROKER_KEY[key].parse(text, key=key)


def _values(given: Mapping[str, str]) -> dict[str, SettingValue]:
    for key in given:
        if key not in BY_BROKER_KEY and key not in ALIASES and not is_listener_key(key):
            raise unknown_key_error(key, (*BY_BROKER_KEY, *ALIASES), what="setting")
    return {key: _value(setting, given) for key, setting in BY_BROKER_KEY.items()}


def _of_listeners(
    given: Mapping[str, str], names: Sequence[str]
) -> Mapping[ListenerKey, SettingValue]:
    found: dict[ListenerKey, SettingValue] = {}
    for key in filter(is_listener_key, given):
        parsed = ListenerKey.parse(key)
        if parsed.listener not in names:
            raise ConfigError(
                f"'{key}': listeners has no {parsed.listener}, but {', '.join(names)}"
            )
        if parsed in found:
            raise ConfigError(f"'{key}' is set twice, in upper and in lower case")
        found[parsed] = parsed.setting.parse(given[key], key=key)
    return found


def _value(setting: Setting, given: Mapping[str, str]) -> SettingValue:
    # An empty text, list or value without a default is "not set"; else it is a mistake.
    may_be_empty = setting.type in _EMPTY_IS_ABSENT or setting.default is None
    # Where a choice is empty, that is a value.
    may_be_empty = may_be_empty and "" not in setting.choices
    for key in _names(setting.broker_key):
        if key in given and (given[key].strip() or not may_be_empty):
            return check_broker_setting(key, given[key])
    if setting.required:
        raise _missing(setting.broker_key)
    return setting.default


def _aliased(setting: Setting, value: SettingValue, factor: int) -> SettingValue:
    # -1 is "no limit" in every unit.
    if isinstance(value, int) and value >= 0:
        return min(value * factor, int(setting.largest))
    return value


def _names(key: str, given: Iterable[str] = ()) -> tuple[str, ...]:
    """All names of the same setting; for a listener's setting only those in `given`."""
    if is_listener_key(key):
        same = ListenerKey.parse(key)
        return tuple(
            each for each in given if is_listener_key(each) and ListenerKey.parse(each) == same
        )
    setting = ALIASES[key][0] if key in ALIASES else BY_BROKER_KEY.get(key)
    if setting is None:
        return ()
    return (setting.broker_key, *(alias.name for alias in setting.aliases))


def _missing(key: str) -> ConfigError:
    return ConfigError(f"the setting '{key}' is missing: {BY_BROKER_KEY[key].doc}")


def check_access(config: BrokerConfig) -> None:
    """Raises ConfigError for invalid super users, or for them without an authorizer."""
    users = config.get(SUPER_USERS)
    if isinstance(users, str):
        super_users_of(users, key=SUPER_USERS)
    if config.get(AUTHORIZER) is not None:
        return
    for key in (SUPER_USERS, ALLOW_IF_NO_RULE):
        if config.is_given(key) and config.get(key):
            raise ConfigError(f"{key} has no effect without {AUTHORIZER}=AclAuthorizer: set both")


class Integers(Protocol):
    """A source of integer settings by name."""

    def get(self, key: str) -> SettingValue: ...

    def integer(self, key: str) -> int: ...


def check_relations(config: Integers) -> None:
    """Check limits between settings, each with its reason. Raises ConfigError."""
    # A fetch that waits as long as a lagging follower may would make every idle follower lag.
    if config.get("replica.fetch.wait.max.ms") is not None:
        _check_below(config, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
    # A batch that is allowed must fit into a request.
    _check_below(config, "message.max.bytes", "socket.request.max.bytes")
    # Groups may have values of their own, between the same bounds.
    for setting in ("session.timeout.ms", "heartbeat.interval.ms"):
        _check_below(config, f"group.consumer.min.{setting}", f"group.consumer.{setting}")
        _check_below(config, f"group.consumer.{setting}", f"group.consumer.max.{setting}")


def _check_below(config: Integers, lower: str, upper: str) -> None:
    low, high = config.integer(lower), config.integer(upper)
    if low > high:
        raise ConfigError(f"{lower}={low} must not be above {upper}={high}")


def log_without_effect(names: Iterable[str], table: Mapping[str, Setting], *, where: str) -> None:
    """Log the given settings without effect; `where`: "server.properties", "topic 't'"."""
    for name in sorted(names):
        setting = table.get(name)
        if setting is not None and setting.without_effect:
            log.warning("%s of %s has no effect: %s", name, where, setting.without_effect)
