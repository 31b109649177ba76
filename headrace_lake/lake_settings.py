"""The settings of a lake and of its tables: where they come from, and what is refused.

A table is named in the settings of its topic (`headrace.table.*`), or in the lake's own file, which
counts above them. Whoever may create a topic chooses its settings, so a location in them must lie
below the lake's root; one in the file may be anywhere.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from storage_engine.core.errors import ConfigError
from storage_engine.core.ids import topic_name_problem
from storage_engine.core.settings.settings import BY_TOPIC_KEY

PREFIX = "headrace.table."
FORMAT = f"{PREFIX}format"
LOCATION = f"{PREFIX}location"
PARTITION_BY = f"{PREFIX}partition.by"
COMMIT_INTERVAL = f"{PREFIX}commit.interval.ms"
FILE_BYTES = f"{PREFIX}file.bytes"
TABLE_SETTINGS = (FORMAT, LOCATION, PARTITION_BY, COMMIT_INTERVAL, FILE_BYTES)

DEFAULT_GROUP = "headrace-lake"
DEFAULT_MEMORY_BYTES = 512 << 20
LEAST_MEMORY_BYTES = 384 << 20
"""Python, Arrow and the table library take 200 MiB before the first record."""

_OF_FILE = "table."
_SUFFIXES = tuple(name.removeprefix(PREFIX) for name in TABLE_SETTINGS)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """One topic that is written into a table."""

    topic: str
    location: str
    """An absolute path, or a URL."""
    partition_by: tuple[str, ...] = ()
    commit_interval_ms: int = 30_000
    file_bytes: int = 128 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """The settings of one instance of the service."""

    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The settings of the connection, by Kafka's names."""
    root: str | None = None
    """Where the tables of topic settings are; None: those are refused."""
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By topic, the settings of tables that the file names, by the names of topic settings."""
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Options of the object store."""
    group: str = DEFAULT_GROUP
    session_timeout_ms: int = 10_000
    """An instance that is silent for so long has to give its partitions to others."""
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    metrics: tuple[str, int] | None = None
    """Where metrics for Prometheus are given."""

    def __post_init__(self) -> None:
        if self.memory_bytes < LEAST_MEMORY_BYTES:
            raise ConfigError(
                f"memory is {self.memory_bytes >> 20} MiB; it must be "
                f"{LEAST_MEMORY_BYTES >> 20} MiB or more"
            )
        if not self.group:
            raise ConfigError("group is empty; give the name of a consumer group")
        for topic, given in self.tables.items():
            # A table of the file that can't be is an error at once, and not when its topic comes.
            self.table(topic, {FORMAT: "delta", **given}, is_of_file=True)

    def table(
        self, topic: str, values: Mapping[str, str], *, is_of_file: bool = False
    ) -> TableSettings:
        """The table of a topic with these settings. ConfigError for what is wrong with them."""
        parsed = {name: BY_TOPIC_KEY[name].default for name in TABLE_SETTINGS}
        parsed |= {name: BY_TOPIC_KEY[name].parse(text) for name, text in values.items()}
        partition_by, interval_ms = parsed[PARTITION_BY], parsed[COMMIT_INTERVAL]
        file_bytes, location = parsed[FILE_BYTES], parsed[LOCATION]
        assert isinstance(partition_by, tuple)
        assert isinstance(interval_ms, int) and isinstance(file_bytes, int)
        return TableSettings(
            topic=topic,
            location=self._location(topic, str(location or topic), is_of_file=is_of_file),
            partition_by=partition_by,
            commit_interval_ms=interval_ms,
            file_bytes=file_bytes,
        )

    def _location(self, topic: str, given: str, *, is_of_file: bool) -> str:
        root = None if self.root is None else self.root.rstrip("/") or "/"
        if ".." in PurePosixPath(given).parts:
            raise ConfigError(f"{LOCATION}={given}: '..' is not allowed; name the folder itself")
        is_whole = given.startswith("/") or "://" in given
        if not is_whole:
            if root is None:
                raise ConfigError(
                    f"{LOCATION}={given}: the lake has no root, below which the tables of topics "
                    "are; start it with --root"
                )
            return f"{root.rstrip('/')}/{given}"
        if not is_of_file and (root is None or not given.startswith(f"{root.rstrip('/')}/")):
            raise ConfigError(
                f"{LOCATION}={given}: it is not below the root of the lake ({root or 'none'}); "
                f"give a location below it, or name the table of topic '{topic}' in the lake's "
                "own file"
            )
        return given.rstrip("/")


def tables_of_file(given: Mapping[str, str], file: Path | None) -> dict[str, dict[str, str]]:
    """The tables among the settings of a lake's file, `table.TOPIC.location=…` and the like, by
    topic and by the names of topic settings. ConfigError names the file."""
    tables: dict[str, dict[str, str]] = {}
    for name, text in given.items():
        if not name.startswith(_OF_FILE):
            continue
        suffix = next((each for each in _SUFFIXES if name.endswith(f".{each}")), None)
        topic = "" if suffix is None else name[len(_OF_FILE) : -len(suffix) - 1]
        if suffix is None or topic_name_problem(topic) is not None:
            raise ConfigError(
                f"{file}: '{name}' is no setting of a table; write {_OF_FILE}TOPIC.NAME=…, where "
                f"NAME is one of {', '.join(_SUFFIXES)}"
            )
        tables.setdefault(topic, {})[f"{PREFIX}{suffix}"] = text
    return tables


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTables:
    """The tables that a lake has to write, and the topics whose tables it can't."""

    tables: Mapping[str, TableSettings] = field(default_factory=dict)
    """By topic."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By topic, one line that says why."""


def planned(
    settings: LakeSettings, of_topics: Mapping[str, Mapping[str, str]], there: Iterable[str]
) -> PlannedTables:
    """The tables of the topics that are `there`; `of_topics`: the settings of those that have a
    format."""
    tables: dict[str, TableSettings] = {}
    refused: dict[str, str] = {}
    for topic in sorted({*of_topics, *settings.tables} & {*there}):
        of_file = settings.tables.get(topic, {})
        given = {**of_topics.get(topic, {}), **of_file}
        try:
            tables[topic] = settings.table(topic, given, is_of_file=LOCATION in of_file)
        except ConfigError as error:
            refused[topic] = f"topic '{topic}': {error}"
    by_place: dict[str, list[str]] = {}
    for topic, table in tables.items():
        by_place.setdefault(table.location, []).append(topic)
    for place, topics in by_place.items():
        if len(topics) > 1:
            names = ", ".join(f"'{each}'" for each in topics)
            for topic in topics:
                refused[topic] = (
                    f"topics {names} name one table, {place}: give each a {LOCATION} of its own"
                )
                del tables[topic]
    return PlannedTables(tables=tables, refused=refused)
