"""The results once more, as a table that others read: the lake writes them into Delta while the
stream runs, and DuckDB gets the last row of each airport and hour out of it."""

import contextlib
import importlib.util
import time
from pathlib import Path

import pyarrow as pa

from examples.flights.proof import RESULT_KEY, RESULT_SCHEMA
from storage_engine.tools.local.lake.lake_process import lake_is_installed
from storage_engine.tools.local.local_cluster import LocalCluster

TOPIC = "delays"
SETTINGS = {"headrace.table.format": "delta", "headrace.table.commit.interval.ms": "2000"}
"""The settings of a topic that has a table."""

_WAIT_S = 60
_LOOK_S = 0.2

_LATEST = """
    SELECT {columns} FROM rows
    QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY _partition, _offset DESC) = 1
"""


class DelaysTable:
    """The table of the topic of results."""

    def __init__(self, root: Path) -> None:
        """`root`: of the lake, a folder."""
        self._root = root
        self.place = root / TOPIC

    def open(self, cluster: LocalCluster) -> str | None:
        """Start the lake of a cluster; returns why there is none."""
        if not lake_is_installed() or importlib.util.find_spec("duckdb") is None:
            return "a table needs more packages: pip install 'headrace[lake]' duckdb"
        # The lake runs in the cluster's folder.
        cluster.open_lake(str(self._root.resolve()))
        return None

    def latest(self, records: int) -> pa.Table:
        """The last row of each key, by DuckDB, once the table has so many rows. TimeoutError."""
        import duckdb
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        deadline = time.monotonic() + _WAIT_S
        while True:
            # The lake makes it with the topic's first look, which may come after the last row.
            with contextlib.suppress(TableNotFoundError):
                rows = DeltaTable(str(self.place)).to_pyarrow_dataset()
                if rows.count_rows() >= records:
                    break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.place} has not {records} rows after {_WAIT_S} s")
            time.sleep(_LOOK_S)
        named = _LATEST.format(columns=", ".join(RESULT_SCHEMA.names), key=", ".join(RESULT_KEY))
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("rows", rows)
            return connection.execute(named).to_arrow_table().cast(RESULT_SCHEMA)
