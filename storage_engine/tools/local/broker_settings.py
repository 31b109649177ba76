"""The `server.properties` that `headrace up` and `machine init` write for each broker.

They are safe by default.

A key that is in the file stays as it is, so that a person's changes survive, except for what the
folder itself decides (id, port, paths, ZooKeeper) and what the caller gives with `--set`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from storage_engine.broker.settings.config import (
    BrokerConfig,
    check_broker_setting,
    parse_properties,
)
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.settings import ALIASES
from storage_engine.tools.errors import UsageError
from storage_engine.tools.local.secret_files import write_whole

SAFE_REPLICATION_FACTOR = 3
SAFE_MIN_IN_SYNC = 2
"""With three replicas, an acknowledged record then survives the loss of any one broker, and writes
continue while one broker is away."""

FOLDER_KEYS = ("broker.id", "listeners", "advertised.listeners", "log.dirs", "zookeeper.connect")

_HEADING = (
    "# Written by 'headrace up' or 'machine init', which keep the keys that you add or change.\n"
    "# All keys, with their meaning: conf/ and 'headrace broker --help'.\n"
)


def parse_setting(text: str) -> tuple[str, str]:
    """`KEY=VALUE` of the command line; UsageError for anything else."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"'--set {text}' is not of the form KEY=VALUE")
    return key.strip(), value.strip()


def check_cluster_settings(settings: Iterable[tuple[str, str]]) -> None:
    """ConfigError for an unknown key or impossible value, UsageError for a key that differs from
    broker to broker.
    """
    for key, value in settings:
        check_broker_setting(key, value)
        if _first_name(key) in FOLDER_KEYS:
            raise UsageError(
                f"'--set {key}=…' would give all brokers the same {key}; 'headrace up' sets it "
                "for each (--port, --zookeeper), or change it in broker-<id>/server.properties"
            )


def safe_defaults(broker_count: int) -> dict[str, str]:
    """Replication that fits the number of brokers."""
    factor = str(min(SAFE_REPLICATION_FACTOR, broker_count))
    result = {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
    }
    if broker_count >= SAFE_REPLICATION_FACTOR:
        in_sync = str(SAFE_MIN_IN_SYNC)
        result |= {"min.insync.replicas": in_sync, "transaction.state.log.min.isr": in_sync}
    else:
        result |= {"transaction.state.log.min.isr": "1"}
    return result


def merge_settings(
    present: Mapping[str, str],
    *,
    decided: Mapping[str, str],
    overrides: Iterable[tuple[str, str]],
    brokers_before: int,
    brokers_now: int,
) -> dict[str, str]:
    """The settings of one broker.

    Safe defaults follow the number of brokers until somebody changes them.
    """
    result = dict(present)
    before = safe_defaults(brokers_before) if brokers_before else {}
    for key, value in safe_defaults(brokers_now).items():
        if key not in result or result[key] == before.get(key):
            result[key] = value
    for key, value in overrides:
        # The same setting under another name would contradict the override.
        for other in [other for other in result if _first_name(other) == _first_name(key)]:
            del result[other]
        result[key] = value
    listeners = result.get("listeners", "")
    result.update(decided)
    if listeners and _port(listeners) == _port(decided["listeners"]):
        result["listeners"] = listeners  # a person chose the host or the protocol
    return {key: result[key] for key in [*decided, *(key for key in result if key not in decided)]}


def check_settings(path: Path, settings: Mapping[str, str]) -> None:
    """ConfigError that names the file when a broker would refuse the settings."""
    try:
        BrokerConfig.from_mapping(settings)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def read_settings(path: Path) -> dict[str, str]:
    """The keys of a properties file; none when there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    return parse_properties(text, source=str(path))


def write_settings(path: Path, settings: Mapping[str, str]) -> None:
    """Write the file unless it says the same already (then comments in it stay). It may have
    passwords: it and its folder are for their owner alone."""
    if path.exists() and read_settings(path) == settings:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(path, format_properties(settings).encode())


def format_properties(settings: Mapping[str, str]) -> str:
    """Java's `.properties` syntax, with what that syntax would change escaped."""
    return _HEADING + properties_lines(settings)


def properties_lines(settings: Mapping[str, str]) -> str:
    return "".join(
        f"{_escape(key, is_key=True)}={_escape(value)}\n" for key, value in settings.items()
    )


def _escape(text: str, *, is_key: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    escaped = escaped.replace("\t", "\\t").replace("\f", "\\f")
    if is_key:
        for character in " :=#!":
            escaped = escaped.replace(character, "\\" + character)
    elif escaped.startswith(" "):
        escaped = "\\" + escaped
    return escaped


def _first_name(key: str) -> str:
    """The name of a setting that has several."""
    return ALIASES[key][0].broker_key if key in ALIASES else key


def _port(listeners: str) -> int | None:
    """The port of the first listener."""
    try:
        return urlsplit(listeners.split(",")[0].strip()).port
    except ValueError:
        return None
