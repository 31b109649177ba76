"""A topic's table in Delta Lake: one loaded version, and commits on exactly this version.

The library is told to try a commit once: what it does at a conflict is to put the commit behind
those of others, which would double rows. So a commit either makes the next version, or the table is
loaded again (`reload`), which looks at what each version since then did.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import time
from uuid import UUID

import pyarrow as pa
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field,
    PostCommitHookProperties,
    Schema,
    TableFeatures,
)
from deltalake import Transaction as AppTransaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from headrace_lake.delta.data_files import DataFile, order_of
from headrace_lake.delta.log_reading import COMMIT_ID, LoggedCommit, read_commit
from headrace_lake.delta.store import StoreError, TableStore, first_line
from headrace_lake.protocol import foreign_changes, progress
from headrace_lake.protocol.attempts import TableState
from headrace_lake.protocol.columns import DeltaType, LakeColumn, LakeGrowth, LakeShape, growth
from headrace_lake.protocol.compaction_plan import LakeFile
from headrace_lake.protocol.progress import LakeProgress, Progress
from headrace_lake.protocol.resuming import recreated
from headrace_lake.protocol.stops import (
    ACCEPTED_GAPS,
    TOPIC_ID,
    StopKind,
    TableStoppedError,
)
from storage_engine.core.ids import topic_id_to_text
from storage_engine.core.printable import printable

logger = logging.getLogger(__name__)

CHECKPOINT_INTERVAL = 100
"""In versions: a reader loads the last checkpoint and the commits since then."""

MOST_TRIED = 1000
"""The most commit ids that are remembered; a writer tries one at a time."""

_FIRST_TOPIC_ID = "headrace.first.topic.id"
"""A property of the table: the topic for which it was made."""

_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
_LIBRARY_ERRORS = (DeltaError, OSError, ValueError, RuntimeError)
"""Errors of the library, besides its own: whatever its parts in Rust meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTopic:
    """The topic of a table."""

    name: str
    topic_id: UUID


class LakeTable:
    """One version of the table, as it was loaded; not for several threads.

    StoreError from any method leaves open what happened; the next `reload` tells.
    """

    def __init__(self, store: TableStore, topic: LakeTopic, handle: DeltaTable) -> None:
        self._store = store
        self._topic = topic
        self._handle = handle
        self._marker = progress.marker_application(topic.topic_id)
        self._applications: dict[str, int | None] = {}
        """As far as they were asked for; None: the table has none of that name."""
        self._tried: dict[str, bool] = {}
        """Whether a commit of this id was seen in the table."""
        self._walked = handle.version()
        """The last version whose commit was looked at: not above the one that is loaded."""
        self._last: LoggedCommit | None = None
        """The commit that made that version; None until it was read."""
        self._is_stale = False

    @classmethod
    def open(cls, store: TableStore, topic: LakeTopic, shape: LakeShape) -> "LakeTable":
        """Return the table, which is made if there is none.

        TableStoppedError when it must not be written: of another topic, changed by others, or of
        columns that can't grow to those of the shape.
        """
        try:
            handle = _load(store)
        except TableNotFoundError:
            handle = _create(store, topic, shape)
        table = cls(store, topic, handle)
        table._check_opened(shape)
        table._list_invariants()
        return table

    @property
    def version(self) -> int:
        return self._handle.version()

    @property
    def is_stale(self) -> bool:
        """Return True when a commit failed since the version was loaded."""
        return self._is_stale

    @property
    def accepts_gaps(self) -> bool:
        return self._configuration.get(ACCEPTED_GAPS, "").lower() == "true"

    def progress(self, partitions: Iterable[int]) -> dict[int, LakeProgress]:
        """Return how far these partitions are in the loaded version."""
        wanted = list(partitions)
        known: dict[str, int] = {}
        for partition in wanted:
            for name in (
                progress.offset_application(self._topic.topic_id, partition),
                progress.epoch_application(self._topic.topic_id, partition),
            ):
                version = self._application(name)
                if version is not None:
                    known[name] = version
        return progress.of_applications(self._topic.topic_id, known, wanted)

    def state(self, partitions: Iterable[int]) -> TableState:
        """Return what `attempts.decide` asks of the loaded version."""
        swept = self._application(progress.sweep_application(self._topic.topic_id))
        return TableState(
            version=self.version,
            progress=self.progress(partitions),
            swept_version=-1 if swept is None else swept,
            landed=frozenset(each for each, landed in self._tried.items() if landed),
        )

    def reload(self) -> None:
        """Load the newest version; TableStoppedError for changes with which it can't go on."""
        self._is_stale = True
        with _store_errors(self._store, "load"):
            self._handle.update_incremental()
        self._check_same()
        self._walk()
        self._is_stale = False

    def commit(
        self,
        files: Sequence[DataFile],
        ends: Progress,
        commit_id: str,
        *,
        also: Mapping[str, int] | None = None,
    ) -> bool:
        """Commit files, and how far the partitions are with them, on the loaded version.

        Return False when it is not known that this made the next version: `reload`, then decide.
        """
        versions = progress.as_applications(self._topic.topic_id, ends) | dict(also or {})
        return self._commit([_added(each) for each in files], versions, commit_id)

    def replace(self, old: Sequence[LakeFile], new: Sequence[DataFile], commit_id: str) -> bool:
        """Commit that `new` files hold the rows of `old` ones; otherwise as `commit`."""
        now_ms = int(time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            RemoveAction(each.path, False, now_ms, each.size_bytes, dict(each.partition))
            for each in old
        ]
        actions += [_added(each, data_change=False) for each in new]
        return self._commit(actions, {}, commit_id)

    def mark_sweep(self, commit_id: str) -> bool:
        """Commit that files that no version up to this one names may be removed from now on."""
        sweep = progress.sweep_application(self._topic.topic_id)
        return self._commit([], {sweep: self.version + 1}, commit_id)

    def growth(self, shape: LakeShape) -> LakeGrowth:
        """Return what the table lacks for rows of this shape."""
        return growth(self._topic.name, self._columns(), shape)

    def grow(self, shape: LakeShape) -> None:
        """Give the table what it lacks, before rows of this shape are committed."""
        while (needed := self.growth(shape)).is_needed:
            if not self._grow_once(needed):
                self.reload()

    def files(self) -> list[LakeFile]:
        """Return the active files that we wrote, and that nobody marked rows in as deleted."""
        with _store_errors(self._store, "read the files of"):
            marked = self._marked_files()
            actions = pa.table(self._handle.get_add_actions())
        names = self._handle.metadata().partition_columns
        columns = [actions["partition"].combine_chunks().field(each) for each in names]
        found = []
        for row, (path, size) in enumerate(
            zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
        ):
            order = order_of(path)
            if order is None or path in marked:
                continue
            values = tuple(
                (name, _partition_text(column[row]))
                for name, column in zip(names, columns, strict=True)
            )
            found.append(LakeFile(path=path, size_bytes=size, order=order, partition=values))
        return found

    @property
    def handle(self) -> DeltaTable:
        """Return the library's table, for upkeep that commits nothing."""
        return self._handle

    @property
    def store(self) -> TableStore:
        return self._store

    @property
    def _configuration(self) -> Mapping[str, str]:
        return self._handle.metadata().configuration

    def _columns(self) -> list[tuple[str, DeltaType, bool]]:
        schema = json.loads(self._handle.schema().to_json())
        return [(each["name"], _bare(each["type"]), each["nullable"]) for each in schema["fields"]]

    def _application(self, name: str) -> int | None:
        if name not in self._applications:
            with _store_errors(self._store, "read the progress of"):
                self._applications[name] = self._handle.transaction_version(name)
        return self._applications[name]

    def _check_opened(self, shape: LakeShape) -> None:
        topic = self._topic
        configuration = self._configuration
        if TOPIC_ID not in configuration:
            raise TableStoppedError(
                StopKind.FOREIGN_CHANGE,
                f"the table at {printable(self._store.url)} was not made for a topic: write "
                f"{topic.name} to a table at another location",
            )
        if configuration[TOPIC_ID] != topic_id_to_text(topic.topic_id):
            raise recreated(topic.name, topic.topic_id)
        foreign_changes.check_properties(topic.name, configuration)
        self._check_partitioning(shape)
        self.growth(shape)
        marked = self._application(self._marker)
        if marked is None:
            if configuration.get(_FIRST_TOPIC_ID) == configuration[TOPIC_ID]:
                raise foreign_changes.lost_progress(topic.name)
            # Somebody has set the id of a topic that was made anew, so as to keep its old rows.
            marked = self.version
        self._walked = marked
        self._walk()

    def _check_partitioning(self, shape: LakeShape) -> None:
        there = list(self._handle.metadata().partition_columns)
        if there != list(shape.partition_by):
            raise TableStoppedError(
                StopKind.COLUMNS,
                f"the table of {self._topic.name} is divided by {there or 'nothing'}, not by "
                f"{list(shape.partition_by) or 'nothing'}: set that, or write the topic to a table "
                "at another location",
            )

    def _check_same(self) -> None:
        """The commit that was looked at last must still be there as it was."""
        known = self._last
        again = read_commit(self._store, self._walked)
        if again is None or (known is not None and again.digest != known.digest):
            raise TableStoppedError(
                StopKind.FOREIGN_CHANGE,
                f"the table of {self._topic.name} at {printable(self._store.url)} was dropped, or "
                "made anew by others: start again to write a new table, or give the topic another "
                "location",
            )
        self._last = again

    def _walk(self) -> None:
        """Look at the commits behind those that were looked at, up to the loaded version."""
        accepted = foreign_changes.accepted_version(self._configuration)
        for version in range(self._walked + 1, self.version + 1):
            found = read_commit(self._store, version)
            if found is not None:
                self._note(found.change, accepted)
            elif version > accepted:
                raise foreign_changes.missing_changes(self._topic.name, version, self.version)
            else:
                self._applications.clear()
            self._last, self._walked = found, version
        if self._configuration.get(TOPIC_ID) != topic_id_to_text(self._topic.topic_id):
            raise recreated(self._topic.name, self._topic.topic_id)

    def _note(self, change: foreign_changes.TableChange, accepted: int) -> None:
        for line in foreign_changes.check_changes(
            self._topic.name, [change], self._marker, accepted_version=accepted
        ):
            logger.warning("%s", line)
        self._applications.update(change.applications)
        if change.commit_id in self._tried:
            self._tried[change.commit_id] = True

    def _commit(
        self,
        actions: Sequence[AddAction | RemoveAction],
        versions: Mapping[str, int],
        commit_id: str,
    ) -> bool:
        assert not self._is_stale, "reload, and decide again"
        self._tried.setdefault(commit_id, False)
        if len(self._tried) > MOST_TRIED:
            del self._tried[next(iter(self._tried))]
        self._is_stale = True
        try:
            self._handle.create_write_transaction(
                list(actions),
                "append",
                self._handle.schema(),
                self._handle.metadata().partition_columns,
                commit_properties=self._properties(versions, commit_id),
                post_commithook_properties=_NO_HOOKS,
            )
        except CommitFailedError:
            return False
        except _LIBRARY_ERRORS as error:
            raise self._open_question(error) from error
        self.reload()
        return self._tried[commit_id]

    def _list_invariants(self) -> None:
        """Say in the table that it has columns that are NOT NULL, where it lists its features:
        Spark reads it only then, and the library does not say so when it makes the table."""
        while self._lacks_invariants():
            self._is_stale = True
            try:
                self._handle.alter.add_feature(
                    TableFeatures.Invariants,
                    commit_properties=self._properties({}, None),
                    post_commithook_properties=_NO_HOOKS,
                )
            except CommitFailedError:
                logger.info("others changed %s meanwhile", self._store.url)
            except _LIBRARY_ERRORS as error:
                raise self._open_question(error) from error
            self.reload()

    def _lacks_invariants(self) -> bool:
        features = self._handle.protocol().writer_features
        return features is not None and "invariants" not in features

    def _grow_once(self, needed: LakeGrowth) -> bool:
        assert not self._is_stale, "reload, and look again"
        properties = self._properties({}, None)
        self._is_stale = True
        try:
            if needed.added:
                self._handle.alter.add_columns(
                    [_field(each) for each in needed.added],
                    commit_properties=properties,
                    post_commithook_properties=_NO_HOOKS,
                )
            else:
                self._handle.alter.drop_column_not_null(
                    needed.relaxed[0],
                    commit_properties=properties,
                    post_commithook_properties=_NO_HOOKS,
                )
        except CommitFailedError:
            return False
        except _LIBRARY_ERRORS as error:
            raise self._open_question(error) from error
        self.reload()
        return True

    def _properties(self, versions: Mapping[str, int], commit_id: str | None) -> CommitProperties:
        named = {**versions, self._marker: self.version + 1}
        return CommitProperties(
            custom_metadata=None if commit_id is None else {COMMIT_ID: commit_id},
            max_commit_retries=0,
            app_transactions=[AppTransaction(name, each) for name, each in named.items()],
        )

    def _open_question(self, error: Exception) -> StoreError:
        return StoreError(
            f"a commit to {printable(self._store.url)} may have failed: {first_line(error)}"
        )

    def _marked_files(self) -> set[str]:
        features = self._handle.protocol().reader_features or []
        if "deletionVectors" not in features:
            return set()
        vectors = self._handle.deletion_vectors().read_all()
        return {each.rpartition("/")[2] for each in pa.table(vectors)["filepath"].to_pylist()}


def _load(store: TableStore) -> DeltaTable:
    with _store_errors(store, "load"):
        return DeltaTable(store.url, storage_options=store.options)


def _create(store: TableStore, topic: LakeTopic, shape: LakeShape) -> DeltaTable:
    """Make version 0, or load what another writer made meanwhile."""
    store.prove_conditional_writes()
    text = topic_id_to_text(topic.topic_id)
    marker = progress.marker_application(topic.topic_id)
    try:
        DeltaTable.create(
            store.url,
            _schema(shape.columns),
            mode="error",
            partition_by=list(shape.partition_by),
            name=topic.name,
            configuration={
                TOPIC_ID: text,
                _FIRST_TOPIC_ID: text,
                "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
                "delta.logRetentionDuration": "interval 7 days",
            },
            storage_options=store.options,
            commit_properties=CommitProperties(
                max_commit_retries=0, app_transactions=[AppTransaction(marker, 0)]
            ),
            post_commithook_properties=_NO_HOOKS,
            raise_if_key_not_exists=False,
        )
    except _LIBRARY_ERRORS as error:
        # What was made, by this call or by another writer, is seen when it is loaded.
        logger.info("could not make %s: %s", store.url, first_line(error))
    try:
        return _load(store)
    except TableNotFoundError as error:
        raise StoreError(f"could not make a table at {printable(store.url)}") from error


@contextmanager
def _store_errors(store: TableStore, action: str) -> Iterator[None]:
    """TableNotFoundError passes through."""
    try:
        yield
    except TableNotFoundError:
        raise
    except _LIBRARY_ERRORS as error:
        raise StoreError(
            f"could not {action} the table at {printable(store.url)}: {first_line(error)}"
        ) from error


def _schema(columns: Iterable[LakeColumn]) -> Schema:
    fields = [
        {"name": each.name, "type": each.delta_type, "nullable": each.nullable, "metadata": {}}
        for each in columns
    ]
    return Schema.from_json(json.dumps({"type": "struct", "fields": fields}))


def _field(column: LakeColumn) -> Field:
    return _schema([column]).fields[0]


def _bare(delta_type: DeltaType) -> DeltaType:
    """Return the type without what others noted about its fields."""
    if isinstance(delta_type, list):
        return [_bare(each) for each in delta_type]
    if isinstance(delta_type, dict):
        return {key: {} if key == "metadata" else _bare(value) for key, value in delta_type.items()}
    return delta_type


def _added(file: DataFile, *, data_change: bool = True) -> AddAction:
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition),
        modification_time=int(time() * 1000),
        data_change=data_change,
        stats=file.statistics,
    )


def _partition_text(value: pa.Scalar) -> str | None:
    found = value.as_py()
    if found is None:
        return None
    return str(found).lower() if isinstance(found, bool) else str(found)
