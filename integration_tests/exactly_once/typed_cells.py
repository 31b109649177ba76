"""The same queries between typed topics. Ids come from a topic with the column `id`, which
librdkafka fills with JSON; rows go to one with the columns `value` and `check`, whose rows
librdkafka reads as JSON. `check` is the CRC-32 of the value, so that a row whose columns come from
different rows is found.
"""

import json
import zlib

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema

SCHEMA = "headrace.schema"
SOURCE = {SCHEMA: new_schema(parse_ddl("id BIGINT NOT NULL, unused STRING"), ()).to_json()}
TARGET = {
    SCHEMA: new_schema(parse_ddl("unused INT, value STRING NOT NULL, check BIGINT"), ()).to_json()
}
"""The settings of both topics."""


def as_record(value: bytes) -> bytes:
    """The value of a record that becomes the row of an id."""
    return b'{"id": %s}' % value


def value_of(record: bytes) -> bytes:
    """The value of a row that came as JSON. AssertionError when its columns are of several rows."""
    row = json.loads(record)
    value: bytes = row["value"].encode()
    assert row["check"] == zlib.crc32(value.partition(b"/")[2]), f"columns are mixed: {row}"
    return value


def ids_of(rows: DataFrame) -> DataFrame:
    """Typed ids as the queries take them."""
    return rows.select(F.col("id").cast("string").cast("binary").alias("value"))


def typed(rows: DataFrame) -> DataFrame:
    """What the queries make, as rows of the target."""
    return rows.select(
        F.col("partition").alias("_partition"),
        "value",
        F.crc32(F.col("value").cast("binary")).alias("check"),
    )
