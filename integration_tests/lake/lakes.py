"""Lakes as processes that can be killed and paused, and what tables and logs hold, to compare."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from integration_tests.forks.forked import ROOT
from integration_tests.support.cluster_support import HasBootstrapServers, wait_until
from storage_engine.client import BulkReader

INTERVAL_MS = 200
"""Between two commits of a table of a test."""

SESSION_S = 3
"""The least that the shared cluster takes: so soon others have the partitions of the dead."""

TABLE = {
    "headrace.table.format": "delta",
    "headrace.table.commit.interval.ms": str(INTERVAL_MS),
}
"""The settings of a topic that has a table."""


class LakeUnderFire:
    """One instance, started again and again."""

    def __init__(
        self, cluster: HasBootstrapServers, folder: Path, group: str, *options: str, number: int = 0
    ) -> None:
        self.root = folder / "lake"
        self.log = folder / f"lake-{number}.log"
        self._arguments = [
            *("--bootstrap-server", cluster.bootstrap_servers),
            *("--root", str(self.root), "--group", group),
            *("--session-timeout", str(SESSION_S), *options),
        ]
        self._process: subprocess.Popen[bytes] | None = None
        self.code = ROOT
        """Whose version runs from the next start on."""

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "storage_engine.tools.cli", "lake", "run"),
                    *self._arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.code,
                env=os.environ | {"PYTHONPATH": str(self.code)},
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def send(self, what: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(what)

    def kill(self) -> None:
        """SIGKILL, also while it is paused."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def end(self) -> int:
        """SIGTERM; its exit status."""
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(60)
        self._process = None
        return status

    def told(self) -> str:
        return self.log.read_text()


@contextlib.contextmanager
def lakes(
    cluster: HasBootstrapServers, folder: Path, group: str, *options: str, count: int = 1
) -> Iterator[list[LakeUnderFire]]:
    """Instances of one lake, all started."""
    made = [LakeUnderFire(cluster, folder, group, *options, number=n) for n in range(count)]
    try:
        for each in made:
            each.start()
        yield made
    finally:
        for each in made:
            each.kill()


def table_at(place: Path | str) -> pa.Table:
    """What a reader of the table gets, in the order of each partition."""
    return in_order(DeltaTable(str(place)).to_pyarrow_table())


def rows_in(place: Path | str) -> int:
    """The number of rows of a table; 0 while there is none."""
    try:
        table = DeltaTable(str(place))
    except TableNotFoundError:
        return 0
    return table.to_pyarrow_dataset().count_rows()


def typed_log(
    cluster: HasBootstrapServers, topic: str, columns: Sequence[str], *, gone: bool = False
) -> pa.Table:
    """What a reader of committed records gets of a typed topic; with `gone` also keys that are."""
    names = [*columns, "_topic", "_partition", "_offset", "_timestamp"]
    names += ["_deleted"] if gone else []
    with BulkReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
        splits = reader.splits([topic])
        batches = [batch for each in splits for batch in reader.read(each, columns=names)]
        schema = reader.arrow_schema(splits[0], columns=names)
    return in_order(pa.Table.from_batches(batches, schema=schema))


def opaque_log(cluster: HasBootstrapServers, topic: str) -> pa.Table:
    """What a reader of committed records gets of an opaque topic, with the names of a table."""
    with BulkReader({"bootstrap.servers": cluster.bootstrap_servers}) as reader:
        splits = reader.splits([topic])
        batches = [batch for each in splits for batch in reader.read(each)]
        schema = reader.arrow_schema(splits[0])
    read = pa.Table.from_batches(batches, schema=schema)
    names = ("key", "value", "headers", "timestamp", "timestampType")
    places = {
        "_topic": "topic",
        "_partition": "partition",
        "_offset": "offset",
        "_timestamp": "timestamp",
    }
    table = pa.table(
        {
            **{name: read[name] for name in names},
            **{name: read[of_log] for name, of_log in places.items()},
        }
    )
    return in_order(table)


def in_order(table: pa.Table, partition: str = "_partition", offset: str = "_offset") -> pa.Table:
    return table.sort_by([(partition, "ascending"), (offset, "ascending")])


def assert_equal(table: pa.Table, log: pa.Table) -> None:
    """The same rows with the same values, however their columns are laid out."""
    assert table.column_names == log.column_names
    assert table.num_rows == log.num_rows
    for name in log.column_names:
        ours = table[name].cast(log.schema.field(name).type).combine_chunks()
        theirs = log[name].combine_chunks()
        assert ours.to_pylist() == theirs.to_pylist(), name


def wait_for_rows(place: Path | str, count: int, lake: LakeUnderFire | None = None) -> None:
    """Until the table has so many rows; with the lake's last words where it does not get there."""

    def there() -> bool:
        return rows_in(place) >= count

    try:
        wait_until(there, f"{count} rows in {place}")
    except AssertionError as error:
        told = "" if lake is None else lake.told()[-3000:]
        raise AssertionError(f"{error}, but {rows_in(place)}; {told}") from None
