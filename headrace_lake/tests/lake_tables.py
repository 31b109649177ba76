"""Tables of a topic with a column of each type, and batches for them."""

import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa

from headrace_lake.delta.batch_commits import commit_batch
from headrace_lake.delta.data_files import RowFiles
from headrace_lake.delta.store import TableStore
from headrace_lake.delta.table import LakeTable, LakeTopic
from headrace_lake.protocol.attempts import AttemptDecision, TableBatch
from headrace_lake.protocol.columns import LakeShape, typed_shape
from headrace_lake.protocol.progress import LakeProgress
from storage_engine.core.ids import LeaderEpoch
from storage_engine.core.typed.ddl import parse_type
from storage_engine.core.typed.topic_schema import ColumnSpec, TopicSchema, new_schema

TOPIC = LakeTopic(name="trips", topic_id=uuid.UUID(int=77))
BEGIN = datetime(2026, 1, 1, 1, 2, 3, 456_789, tzinfo=UTC)

ALL_TYPES = {
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "small": "SMALLINT",
    "whole": "INT",
    "large": "BIGINT",
    "single": "FLOAT",
    "double": "DOUBLE",
    "price": "DECIMAL(9,2)",
    "exact": "DECIMAL(38,10)",
    "text": "STRING",
    "bytes": "BINARY",
    "day": "DATE",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "took": "INTERVAL DAY TO SECOND",
    "tags": "ARRAY<STRING NOT NULL>",
    "names": "MAP<STRING, INT NOT NULL>",
    "who": "STRUCT<name: STRING, age: INT NOT NULL>",
}


def schema_of_types(types: dict[str, str], not_null: tuple[str, ...] = ()) -> TopicSchema:
    return new_schema(
        [
            ColumnSpec(name, parse_type(text), nullable=name not in not_null)
            for name, text in types.items()
        ]
    )


EXACT = typed_shape("trips", schema_of_types(ALL_TYPES, ("large",)))
PLAIN = typed_shape("trips", schema_of_types({"id": "BIGINT", "text": "STRING"}))


def exact_row(number: int) -> dict:
    """A row of EXACT; each fifth one has nulls."""
    place = place_of(0, number)
    if number % 5 == 4:
        return {"large": number, **place}
    return {
        "flag": number % 2 == 0,
        "tiny": number % 100 - 50,
        "small": -number,
        "whole": number,
        "large": -(2**62) + number,
        "single": number / 2,
        "double": number / 3,
        "price": Decimal(number) / 100,
        "exact": Decimal("-12345678901234567890.0000000001") + number,
        "text": "x" * 50 + str(number),
        "bytes": b"\xff" + str(number).encode(),
        "day": date(1900, 1, 1) + timedelta(days=number),
        "at": BEGIN + timedelta(microseconds=number),
        "local": datetime(1969, 1, 1) + timedelta(microseconds=number),
        "took": number * 1000,
        "tags": ["a", str(number)],
        "names": [("one", number)],
        "who": {"name": f"n{number}", "age": number},
        **place,
    }


def place_of(partition: int, offset: int) -> dict:
    at = BEGIN + timedelta(seconds=offset)
    return {"_topic": "trips", "_partition": partition, "_offset": offset, "_timestamp": at}


def plain_rows(first: int, end: int, partition: int = 0) -> pa.Table:
    rows = [
        {"id": offset, "text": f"{partition}-{offset}", **place_of(partition, offset)}
        for offset in range(first, end)
    ]
    return pa.Table.from_pylist(rows, schema=PLAIN.row_schema)


def exact_rows(first: int, end: int) -> pa.Table:
    return pa.Table.from_pylist(
        [exact_row(number) for number in range(first, end)], schema=EXACT.row_schema
    )


def opened(folder, shape: LakeShape = PLAIN, topic: LakeTopic = TOPIC) -> LakeTable:
    return LakeTable.open(TableStore(str(folder)), topic, shape)


def as_batch(
    table: LakeTable, first: int | None, end: int, partition: int = 0, epoch: int = 0
) -> TableBatch:
    start = None
    if first is not None:
        start = LakeProgress(end_offset=first, leader_epoch=LeaderEpoch(epoch))
    reached = LakeProgress(end_offset=end, leader_epoch=LeaderEpoch(epoch))
    return TableBatch(
        commit_id=uuid.uuid4().hex,
        base_version=table.version,
        starts={partition: start},
        ends={partition: reached},
    )


def write(
    table: LakeTable,
    rows: pa.Table,
    first: int | None,
    end: int,
    *,
    partition: int = 0,
    shape: LakeShape = PLAIN,
) -> AttemptDecision:
    """Commit the rows as a batch from `first`, None for the first one, to `end`."""
    batch = as_batch(table, first, end, partition)
    files = RowFiles(table.store, shape.row_schema, shape.partition_by, order=table.version + 1)
    files.write(rows)
    return commit_batch(table, batch, files.finish())
