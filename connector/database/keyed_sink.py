"""Writes micro-batches to a database, each record once. A micro-batch and the ledger's note of it
are written in one transaction. A repetition finds the note, or overwrites the rows of the same
keys.

    from connector import KeyedSink

    sink = KeyedSink("postgresql+psycopg://me@db/shop", table="orders")
    frame.writeStream.foreachBatch(sink).option("checkpointLocation", …).start()

The rows' key is (topic, partition, offset), which no two records share; a query that lost its
checkpoint overwrites what it wrote. Needs SQLAlchemy: `pip install 'headrace[sql]'`.
Source: R-SPARK4.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from connector.database.frames_of_calls import FramesOfCalls, call_of
from connector.errors import ConnectorError, without_traceback
from connector.task_properties import QUERY_ID

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

RECORD_KEY = ("topic", "partition", "offset")
TYPED_KEY = ("_topic", "_partition", "_offset")
"""The key of rows of a typed topic, where the option `columns` names these columns."""
PIECE = "piece"
"""The one column in which rows leave the executors: an Arrow record batch as bytes."""

_FRAMES = FramesOfCalls()


@dataclass(frozen=True)
class KeyedSink:
    """A function for `foreachBatch`. It holds no connection, so that Spark may pickle it. Called
    within one, it takes one frame of a micro-batch for each table and part: a second one is
    BATCH_ID_TAKEN before its first row.

    The driver writes the rows of a micro-batch in one transaction. It fetches one Spark partition
    after the other while the next one is computed, so it holds two of them at most. It makes the
    table from the first frame unless that exists. What is read there is equal to what was written,
    in SQLite, PostgreSQL, MySQL and MariaDB. Its ConnectorErrors are MISSING_PACKAGE, BAD_TABLE,
    BAD_COLUMN, ROW_DOES_NOT_FIT, NULL_KEY and DATABASE_FAILED; after each nothing of the
    micro-batch is in the database.
    """

    url: str = field(repr=False)
    """The URL of the database in SQLAlchemy's form. It may hold a password."""

    _: KW_ONLY

    table: str
    """The table's name, after its schema if that is not the connection's: 'shop.orders'."""

    key: tuple[str, ...] = RECORD_KEY
    """The columns that identify a row. Where a record makes several rows it needs one more
    column. Rows of a typed topic have theirs with `_` in front."""

    part: str = ""
    """Tells the notes of several frames for one table in one micro-batch apart."""

    query_id: str | None = None
    """The ledger keeps the last micro-batch of the table under this id. None stands for Spark's id
    of the query, which changes with the checkpoint; an id of your own must change with it, too.
    Spark Connect does not say Spark's id."""

    engine_options: Mapping[str, Any] = field(default_factory=dict)
    """Arguments for SQLAlchemy's `create_engine`."""

    @without_traceback
    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Returns when the micro-batch is committed, by this call or an earlier one."""
        _check_packages()
        from connector.database import keyed_table as tables

        query = self.query_id or _query_id(frame)
        place = self.url, self.table, self.part, query
        with (
            _FRAMES.only_one(place, batch_id, call_of(frame)),
            tables.database(self.url, self.engine_options) as engine,
        ):
            key = _key_of(self.key, frame.columns)
            table = tables.KeyedTable(engine, self.table, key=key, schema=frame.schema)
            if not table.write(query, batch_id, _pieces(frame), part=self.part):
                logger.warning(
                    "batch %d of the query %s is in the table '%s' already: none of its rows is "
                    "written again",
                    batch_id,
                    query,
                    self.table,
                )


def _key_of(key: tuple[str, ...], columns: Sequence[str]) -> tuple[str, ...]:
    has_place = set(TYPED_KEY) <= set(columns) and not set(RECORD_KEY) <= set(columns)
    return TYPED_KEY if key == RECORD_KEY and has_place else key


def _check_packages() -> None:
    try:
        import sqlalchemy  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "sqlalchemy":
            raise
        raise ConnectorError(
            "MISSING_PACKAGE", "KeyedSink needs SQLAlchemy: pip install 'headrace[sql]'"
        ) from None


def _query_id(frame: "DataFrame") -> str:
    """The id of the query whose micro-batch `frame` is."""
    from pyspark.errors import PySparkException

    try:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    except PySparkException:
        query = None
    if not query:
        raise ConnectorError(
            "NO_QUERY_ID",
            "Spark does not pass the query's id here: give KeyedSink a query_id of your own, "
            "a different one for every new checkpoint",
        )
    return str(query)


def _pieces(frame: "DataFrame") -> "Iterator[pa.RecordBatch]":
    """The rows as Arrow record batches, one Spark partition after the other."""
    import pyarrow as pa

    try:
        pieces = frame.mapInArrow(_as_bytes, f"{PIECE} binary")
    except ImportError:
        # Spark wants pandas where it passes Arrow alone, too.
        raise ConnectorError(
            "MISSING_PACKAGE", "KeyedSink needs Spark's mapInArrow, and that pandas: "
            "pip install 'headrace[sql]'"
        ) from None  # fmt: skip
    for row in pieces.toLocalIterator(True):
        with pa.ipc.open_stream(row[0]) as reader:
            yield from reader


def _as_bytes(rows: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Runs in a task and makes one row of each record batch."""
    import pyarrow as pa

    for batch in rows:
        if batch.num_rows:
            buffer = pa.BufferOutputStream()
            with pa.ipc.new_stream(buffer, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch({PIECE: pa.array([buffer.getvalue().to_pybytes()], pa.binary())})
