"""Writes micro-batches to a database, each record once. Its one rule: a micro-batch and the note
that it is there are one transaction; whatever is repeated finds the note, or the same keys.

    from connector import KeyedSink

    sink = KeyedSink("postgresql+psycopg://me@db/shop", table="orders")
    frame.writeStream.foreachBatch(sink).option("checkpointLocation", …).start()

The rows' key is (topic, partition, offset), which no two records share; a query that lost its
checkpoint overwrites what it wrote. Needs SQLAlchemy: `pip install 'headrace[sql]'`.
Source: R-SPARK4; document 004, 5.2.7.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any

from connector.errors import ConnectorError, without_traceback
from connector.task_properties import QUERY_ID

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

RECORD_KEY = ("topic", "partition", "offset")
PIECE = "piece"
"""The one column in which rows leave the executors: a record batch of Arrow, as bytes."""


@dataclass(frozen=True)
class KeyedSink:
    """A function for `foreachBatch`. It holds no connection, so that Spark may pickle it.

    The rows of a micro-batch come to the driver one Spark partition after the other, while the next
    one is computed, and go into the database in one transaction: the driver holds two partitions at
    the most. The table is made from the first frame unless it exists. MISSING_PACKAGE, BAD_TABLE,
    NULL_KEY and DATABASE_FAILED are its ConnectorErrors; after each nothing of the micro-batch is
    in the database.
    """

    url: str = field(repr=False)
    """Of the database, as SQLAlchemy writes it; it may hold a password."""

    _: KW_ONLY

    table: str

    key: tuple[str, ...] = RECORD_KEY
    """Columns that tell rows apart. A record that makes several rows needs one column more."""

    query_id: str | None = None
    """Under which the numbers of the micro-batches are kept; None: Spark's, which changes with the
    checkpoint, as yours must. Spark Connect does not tell it."""

    engine_options: Mapping[str, Any] = field(default_factory=dict)
    """For SQLAlchemy's `create_engine`."""

    @without_traceback
    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Returns when the micro-batch is committed, by this call or an earlier one."""
        tables = _tables()
        query = self.query_id or _query_id(frame)
        with tables.database(self.url, self.engine_options) as engine:
            table = tables.KeyedTable(engine, self.table, key=self.key, schema=frame.schema)
            table.write(query, batch_id, _pieces(frame))


def _tables() -> Any:
    """The part that needs SQLAlchemy."""
    try:
        from connector.database import keyed_table
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "sqlalchemy":
            raise
        raise ConnectorError(
            "MISSING_PACKAGE", "KeyedSink needs SQLAlchemy: pip install 'headrace[sql]'"
        ) from None
    return keyed_table


def _query_id(frame: "DataFrame") -> str:
    """Of the query whose micro-batch it is."""
    from pyspark.errors import PySparkException

    try:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    except PySparkException:
        query = None
    if not query:
        raise ConnectorError(
            "NO_QUERY_ID",
            "Spark does not tell the query's id here: give KeyedSink a query_id of your own, "
            "another one with every new checkpoint",
        )
    return str(query)


def _pieces(frame: "DataFrame") -> "Iterator[pa.RecordBatch]":
    """The rows as Arrow, of one Spark partition after the other."""
    import pyarrow as pa

    for row in frame.mapInArrow(_as_bytes, f"{PIECE} binary").toLocalIterator(True):
        with pa.ipc.open_stream(row[0]) as reader:
            yield from reader


def _as_bytes(rows: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """In a task: each record batch becomes one row."""
    import pyarrow as pa

    for batch in rows:
        if batch.num_rows:
            buffer = pa.BufferOutputStream()
            with pa.ipc.new_stream(buffer, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch({PIECE: pa.array([buffer.getvalue().to_pybytes()], pa.binary())})
