"""`cluster.json`: which processes run in a cluster's directory, and where.

Other programs read it, so its form does not change.

The file is written whole or not at all, and what was read is checked before anything trusts it: a
file that `headrace up` did not write is one clear error, never a guess.
"""

import json
import os
import tempfile
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from storage_engine.tools.errors import CommandError

FILE_NAME = "cluster.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerEntry:
    """One broker.

    Paths are relative to the cluster's folder; `pid` is None while the broker is stopped.
    """

    id: int
    host: str
    port: int
    pid: int | None
    data_dir: str
    config: str
    log_file: str
    metrics: str | None = None
    """HOST:PORT of its metrics for Prometheus; None: it gives none."""

    @property
    def metrics_url(self) -> str | None:
        return None if self.metrics is None else f"http://{self.metrics}/metrics"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def for_id(cls, broker_id: int, host: str, port: int) -> "BrokerEntry":
        """A stopped broker, with the usual files in its folder."""
        folder = f"broker-{broker_id}"
        return cls(
            id=broker_id,
            host=host,
            port=port,
            pid=None,
            data_dir=f"{folder}/data",
            config=f"{folder}/server.properties",
            log_file=f"{folder}/broker.log",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSecurity:
    """How clients connect to a secured cluster; the files are relative to the cluster's folder."""

    protocol: str
    mechanism: str
    ca: str
    admin: str
    """The settings of the super user."""
    app: str
    """The settings of a user without rights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleEntry:
    """The console of the cluster; `pid` is None while it does not run."""

    url: str
    port: int
    pid: int | None
    progress_token_file: str | None
    """Relative to the cluster's folder: the token with which queries post their progress; None:
    they need none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile:
    """The content of `cluster.json`.

    `zookeeper_dir` is the folder of the embedded ZooKeeper, None when the ZooKeeper is somebody
    else's; then `zookeeper_pid` is None too.
    """

    zookeeper: str
    zookeeper_pid: int | None
    zookeeper_dir: str | None
    brokers: tuple[BrokerEntry, ...]
    security: ClusterSecurity | None = None
    console: ConsoleEntry | None = None

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def broker(self, broker_id: int) -> BrokerEntry:
        """The entry of a broker; CommandError that lists the ids when there is none."""
        for entry in self.brokers:
            if entry.id == broker_id:
                return entry
        ids = ", ".join(str(entry.id) for entry in self.brokers)
        raise CommandError(f"there is no broker {broker_id} in this cluster; its brokers are {ids}")

    def with_pid(self, broker_id: int, pid: int | None) -> "ClusterFile":
        """The same cluster, with the process of one broker changed."""
        self.broker(broker_id)
        return replace(
            self,
            brokers=tuple(
                replace(entry, pid=pid) if entry.id == broker_id else entry
                for entry in self.brokers
            ),
        )


def exists(directory: Path) -> bool:
    """Whether a cluster was ever set up in `directory`."""
    return (directory / FILE_NAME).exists()


def read(directory: Path) -> ClusterFile:
    """The cluster of `directory`; CommandError when there is none or its file is damaged or
    foreign.
    """
    path = directory / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise CommandError(
            f"there is no cluster in '{directory}' (no {FILE_NAME}); start one with: "
            f"headrace up --dir {directory}"
        ) from None
    except UnicodeDecodeError:
        raise _foreign(path, "it is not text in UTF-8") from None
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _foreign(
            path, f"it is not JSON (line {error.lineno}, column {error.colno})"
        ) from None
    try:
        return _parse(document)
    except _Malformed as error:
        raise _foreign(path, str(error)) from None


def write(directory: Path, cluster: ClusterFile) -> None:
    """Replace the file in one step: a reader sees the old one or the new one, also in a crash."""
    text = json.dumps(_document(cluster), indent=2) + "\n"
    handle, name = tempfile.mkstemp(prefix=f".{FILE_NAME}.", dir=directory)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644 if cluster.security is None else 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(directory / FILE_NAME)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class _Malformed(Exception):
    """Says what is wrong with the document."""


def _foreign(path: Path, problem: str) -> CommandError:
    return CommandError(
        f"'{path}' is not a file that 'headrace up' wrote: {problem}; restore it, or remove it "
        f"and run 'headrace up --dir {path.parent}' again, which keeps the data"
    )


def _document(cluster: ClusterFile) -> dict[str, Any]:
    return {
        "zookeeper": cluster.zookeeper,
        "zookeeper_pid": cluster.zookeeper_pid,
        "zookeeper_dir": cluster.zookeeper_dir,
        "bootstrap_servers": cluster.bootstrap_servers,
        "brokers": [
            {
                "id": entry.id,
                "host": entry.host,
                "port": entry.port,
                "pid": entry.pid,
                "data_dir": entry.data_dir,
                "config": entry.config,
                "log_file": entry.log_file,
                "metrics": entry.metrics_url,
            }
            for entry in cluster.brokers
        ],
        **({} if cluster.security is None else {"security": asdict(cluster.security)}),
        **({} if cluster.console is None else {"console": asdict(cluster.console)}),
    }


def _parse(document: object) -> ClusterFile:
    if not isinstance(document, dict):
        raise _Malformed("it is not a JSON object")
    listed = document.get("brokers")
    if not isinstance(listed, list) or not listed:
        raise _Malformed("'brokers' must be a list that is not empty")
    brokers = tuple(_parse_broker(item, f"brokers[{i}]") for i, item in enumerate(listed))
    for name, values in (
        ("id", [entry.id for entry in brokers]),
        ("address", [entry.address for entry in brokers]),
    ):
        if len(set(values)) < len(values):
            raise _Malformed(f"two brokers have the same {name}")
    folder = document.get("zookeeper_dir")
    return ClusterFile(
        zookeeper=_text(document, "zookeeper", ""),
        zookeeper_pid=_pid(document, "zookeeper_pid", ""),
        zookeeper_dir=None if folder is None else _relative_path(document, "zookeeper_dir", ""),
        brokers=brokers,
        security=_parse_security(document.get("security")),
        console=_parse_console(document.get("console")),
    )


def _parse_console(item: object) -> ConsoleEntry | None:
    if item is None:
        return None
    if not isinstance(item, dict):
        raise _Malformed("'console' must be an object")
    place = "console."
    has_token = item.get("progress_token_file") is not None
    return ConsoleEntry(
        url=_text(item, "url", place),
        port=_integer(item, "port", place, lowest=1, highest=65535),
        pid=_pid(item, "pid", place),
        progress_token_file=_relative_path(item, "progress_token_file", place)
        if has_token
        else None,
    )


def _parse_security(item: object) -> ClusterSecurity | None:
    if item is None:
        return None
    if not isinstance(item, dict):
        raise _Malformed("'security' must be an object")
    place = "security."
    return ClusterSecurity(
        protocol=_text(item, "protocol", place),
        mechanism=_text(item, "mechanism", place),
        ca=_relative_path(item, "ca", place),
        admin=_relative_path(item, "admin", place),
        app=_relative_path(item, "app", place),
    )


def _parse_broker(item: object, place: str) -> BrokerEntry:
    if not isinstance(item, dict):
        raise _Malformed(f"'{place}' must be an object")
    place += "."
    return BrokerEntry(
        id=_integer(item, "id", place, lowest=0, highest=2**31 - 1),
        host=_text(item, "host", place),
        port=_integer(item, "port", place, lowest=1, highest=65535),
        pid=_pid(item, "pid", place),
        data_dir=_relative_path(item, "data_dir", place),
        config=_relative_path(item, "config", place),
        log_file=_relative_path(item, "log_file", place),
        metrics=_metrics(item, place),
    )


def _metrics(item: dict[str, Any], place: str) -> str | None:
    if item.get("metrics") is None:
        return None
    url = urlsplit(_text(item, "metrics", place))
    if url.scheme != "http" or not url.netloc:
        raise _Malformed(
            f"'{place}metrics' must be an address such as http://127.0.0.1:19092/metrics"
        )
    return url.netloc


def _text(item: dict[str, Any], key: str, place: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or not value:
        raise _Malformed(f"'{place}{key}' must be a string that is not empty")
    return value


def _integer(item: dict[str, Any], key: str, place: str, *, lowest: int, highest: int) -> int:
    value = item.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
        raise _Malformed(f"'{place}{key}' must be a whole number from {lowest} to {highest}")
    return value


def _pid(item: dict[str, Any], key: str, place: str) -> int | None:
    """Greater than 1: a damaged file must never make us signal a process group or init."""
    if item.get(key) is None:
        return None
    return _integer(item, key, place, lowest=2, highest=2**31 - 1)


def _relative_path(item: dict[str, Any], key: str, place: str) -> str:
    value = _text(item, key, place)
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts:
        raise _Malformed(f"'{place}{key}' must be a path within the cluster's folder")
    return value
