"""`cluster.json`: which processes run in a cluster's directory, and where.

Other programs read it, so its form does not change.

The file is written whole or not at all, and what was read is checked before anything trusts it: a
file that `headrace up` did not write is one clear error, never a guess.
"""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from storage_engine.core.security.scram_credential import ScramMechanism
from storage_engine.tools.document import Document, Json
from storage_engine.tools.errors import CommandError
from storage_engine.tools.local.secret_files import write_whole
from storage_engine.zookeeper.session_credentials import OWNER_ONLY

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
    """HOST:PORT of its metrics for Prometheus; None: it serves none."""

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


PROTOCOL = "SASL_SSL"
MECHANISM = ScramMechanism.SHA_512
ADMIN, APP = "admin", "app"
TLS_FOLDER = "tls"
CA_FILE = "ca.pem"

SECURITY = ClusterSecurity(
    protocol=PROTOCOL,
    mechanism=MECHANISM.value,
    ca=f"{TLS_FOLDER}/{CA_FILE}",
    admin=f"{ADMIN}.properties",
    app=f"{APP}.properties",
)
"""The protocol, mechanism and files of `headrace up --secure`."""


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
class RegistryEntry:
    """The schema registry of the cluster; `pid` is None while it does not run."""

    url: str
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeEntry:
    """The lake of the cluster; `pid` is None while it does not run."""

    root: str
    """Where its tables are: an absolute folder, or a URL."""
    url: str
    """The address of its metrics."""
    pid: int | None


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
    registry: RegistryEntry | None = None
    lake: LakeEntry | None = None

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
        """Return the cluster with another pid of one broker."""
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
    except MalformedError as error:
        raise _foreign(path, str(error)) from None


def write(directory: Path, cluster: ClusterFile) -> None:
    """Replace the file in one step: a reader sees the old one or the new one, also in a crash."""
    text = json.dumps(_document(cluster), indent=2) + "\n"
    mode = 0o644 if cluster.security is None else OWNER_ONLY
    write_whole(directory / FILE_NAME, text.encode(), mode=mode)


class MalformedError(Exception):
    """The document is malformed; the text is the reason."""


def _foreign(path: Path, problem: str) -> CommandError:
    return CommandError(
        f"'{path}' is not a file that 'headrace up' wrote: {problem}; restore it, or remove it "
        f"and run 'headrace up --dir {path.parent}' again, which keeps the data"
    )


def _document(cluster: ClusterFile) -> Document:
    return {
        "zookeeper": cluster.zookeeper,
        "zookeeper_pid": cluster.zookeeper_pid,
        "zookeeper_dir": cluster.zookeeper_dir,
        "bootstrap_servers": cluster.bootstrap_servers,
        "brokers": [{**asdict(entry), "metrics": entry.metrics_url} for entry in cluster.brokers],
        **({} if cluster.security is None else {"security": asdict(cluster.security)}),
        **({} if cluster.console is None else {"console": asdict(cluster.console)}),
        **_registry_fields(cluster.registry),
        **({} if cluster.lake is None else {"lake": asdict(cluster.lake)}),
    }


def _registry_fields(registry: RegistryEntry | None) -> Document:
    """Other programs look for the URL under this name."""
    return {} if registry is None else {"registry": registry.url, "registry_pid": registry.pid}


def _parse(document: Json) -> ClusterFile:
    if not isinstance(document, dict):
        raise MalformedError("it is not a JSON object")
    listed = document.get("brokers")
    if not isinstance(listed, list) or not listed:
        raise MalformedError("'brokers' must be a list that is not empty")
    brokers = tuple(_parse_broker(Fields(item, f"brokers[{i}]")) for i, item in enumerate(listed))
    for name, values in (
        ("id", [entry.id for entry in brokers]),
        ("address", [entry.address for entry in brokers]),
    ):
        if len(set(values)) < len(values):
            raise MalformedError(f"two brokers have the same {name}")
    fields = Fields(document, "")
    security, console = document.get("security"), document.get("console")
    lake = document.get("lake")
    registry = fields.text_or_none("registry")
    return ClusterFile(
        zookeeper=fields.text("zookeeper"),
        zookeeper_pid=fields.pid("zookeeper_pid"),
        zookeeper_dir=fields.path_or_none("zookeeper_dir"),
        brokers=brokers,
        security=None if security is None else _parse_security(Fields(security, "security")),
        console=None if console is None else _parse_console(Fields(console, "console")),
        registry=None
        if registry is None
        else RegistryEntry(url=registry, pid=fields.pid("registry_pid")),
        lake=None if lake is None else _parse_lake(Fields(lake, "lake")),
    )


def _parse_lake(fields: "Fields") -> LakeEntry:
    return LakeEntry(root=fields.text("root"), url=fields.text("url"), pid=fields.pid("pid"))


def _parse_console(fields: "Fields") -> ConsoleEntry:
    return ConsoleEntry(
        url=fields.text("url"),
        port=fields.integer("port", 1, 65535),
        pid=fields.pid("pid"),
        progress_token_file=fields.path_or_none("progress_token_file"),
    )


def _parse_security(fields: "Fields") -> ClusterSecurity:
    return ClusterSecurity(
        protocol=fields.text("protocol"),
        mechanism=fields.text("mechanism"),
        ca=fields.path("ca"),
        admin=fields.path("admin"),
        app=fields.path("app"),
    )


def _parse_broker(fields: "Fields") -> BrokerEntry:
    return BrokerEntry(
        id=fields.integer("id", 0, 2**31 - 1),
        host=fields.text("host"),
        port=fields.integer("port", 1, 65535),
        pid=fields.pid("pid"),
        data_dir=fields.path("data_dir"),
        config=fields.path("config"),
        log_file=fields.path("log_file"),
        metrics=fields.address_or_none("metrics"),
    )


class Fields:
    """The fields of an object in the document, each checked."""

    def __init__(self, item: Json, place: str) -> None:
        if not isinstance(item, dict):
            raise MalformedError(f"'{place}' must be an object")
        self._item = item
        self._place = f"{place}." if place else ""

    def text(self, key: str) -> str:
        value = self._item.get(key)
        if not isinstance(value, str) or not value:
            raise self._malformed(key, "a string that is not empty")
        return value

    def text_or_none(self, key: str) -> str | None:
        return None if self._item.get(key) is None else self.text(key)

    def boolean(self, key: str) -> bool:
        value = self._item.get(key)
        if not isinstance(value, bool):
            raise self._malformed(key, "true or false")
        return value

    def items(self, key: str) -> "list[Json]":
        value = self._item.get(key)
        if not isinstance(value, list) or not value:
            raise self._malformed(key, "a list that is not empty")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.items(key)
        texts = tuple(each for each in values if isinstance(each, str) and each)
        if len(texts) < len(values):
            raise self._malformed(key, "a list of strings that are not empty")
        return texts

    def integer(self, key: str, lowest: int, highest: int) -> int:
        value = self._item.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise self._malformed(key, f"a whole number from {lowest} to {highest}")
        return value

    def pid(self, key: str) -> int | None:
        """Return a pid above 1: a damaged file must never make us signal a group or init."""
        return None if self._item.get(key) is None else self.integer(key, 2, 2**31 - 1)

    def path(self, key: str) -> str:
        value = self.text(key)
        path = PurePosixPath(value)
        if path.is_absolute() or ".." in path.parts:
            raise self._malformed(key, "a path within the cluster's folder")
        return value

    def path_or_none(self, key: str) -> str | None:
        return None if self._item.get(key) is None else self.path(key)

    def address_or_none(self, key: str) -> str | None:
        if self._item.get(key) is None:
            return None
        url = urlsplit(self.text(key))
        if url.scheme != "http" or not url.netloc:
            raise self._malformed(key, "an address such as http://127.0.0.1:19092/metrics")
        return url.netloc

    def _malformed(self, key: str, expected: str) -> MalformedError:
        return MalformedError(f"'{self._place}{key}' must be {expected}")
