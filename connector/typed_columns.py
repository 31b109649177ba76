"""The columns of typed topics in Spark: its types and the topics', and the columns with a row's
origin.

Spark's types of a topic's columns are all nullable, nested parts too: rows of older versions of the
schema lack columns, and a tombstone has only its key.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from connector.errors import OptionError
from connector.schema import ALL_COLUMNS, source_schema
from storage_engine.core.typed import column_types as types
from storage_engine.core.typed.topic_schema import METADATA_COLUMNS as METADATA_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

TOPIC = "_topic"
PARTITION = "_partition"
OFFSET = "_offset"
TIMESTAMP = "_timestamp"
HEADERS = "_headers"
DELETED = "_deleted"

KEY, ERROR = "_key", "_error"
RAW_KEY, RAW_VALUE = "_raw_key", "_raw_value"
"""Columns of records in Avro: `source/avro/avro_read.py`."""


@cache
def metadata_types() -> "Mapping[str, DataType]":
    """Spark's types of METADATA_COLUMNS."""
    from pyspark.sql.types import BooleanType

    of_records = source_schema(ALL_COLUMNS)
    names = (TOPIC, PARTITION, OFFSET, TIMESTAMP, HEADERS)
    return {name: of_records[name[1:]].dataType for name in names} | {DELETED: BooleanType()}


def spark_type(column_type: types.ColumnType) -> "DataType":
    """Spark's type of a topic's column."""
    from pyspark.sql import types as spark

    match column_type:
        case types.IntegerColumn(bits):
            integers = {8: spark.ByteType, 16: spark.ShortType, 32: spark.IntegerType}
            return integers.get(bits, spark.LongType)()
        case types.FloatColumn(bits):
            return spark.FloatType() if bits == 32 else spark.DoubleType()
        case types.DecimalColumn(precision, scale):
            return spark.DecimalType(precision, scale)
        case types.TimestampColumn(with_zone):
            return spark.TimestampType() if with_zone else spark.TimestampNTZType()
        case types.IntervalColumn():
            return spark.DayTimeIntervalType()
        case types.ArrayColumn(element, _):
            return spark.ArrayType(spark_type(element))
        case types.MapColumn(key, value, _):
            return spark.MapType(spark_type(key), spark_type(value))
        case types.StructColumn(fields):
            return spark.StructType(
                [spark.StructField(each.name, spark_type(each.type)) for each in fields]
            )
    plain: dict[type, DataType] = {
        types.BooleanColumn: spark.BooleanType(),
        types.StringColumn: spark.StringType(),
        types.BinaryColumn: spark.BinaryType(),
        types.DateColumn: spark.DateType(),
    }
    return plain[type(column_type)]


def column_type_of(name: str, data_type: "DataType") -> types.ColumnType:
    """A topic's type for a column of a DataFrame, nested parts nullable. OptionError BAD_COLUMN
    where no topic has such a type."""
    from pyspark.sql import types as spark

    match data_type:
        case spark.DecimalType():
            return types.DecimalColumn(data_type.precision, data_type.scale)
        case spark.DayTimeIntervalType():
            return types.IntervalColumn()
        case spark.ArrayType():
            return types.ArrayColumn(column_type_of(name, data_type.elementType))
        case spark.MapType():
            return types.MapColumn(
                column_type_of(name, data_type.keyType), column_type_of(name, data_type.valueType)
            )
        case spark.StructType():
            return types.StructColumn(
                tuple(
                    types.StructColumnField(each.name, column_type_of(name, each.dataType))
                    for each in data_type.fields
                )
            )
    plain: dict[type[DataType], types.ColumnType] = {
        spark.BooleanType: types.BooleanColumn(),
        spark.ByteType: types.IntegerColumn(8),
        spark.ShortType: types.IntegerColumn(16),
        spark.IntegerType: types.IntegerColumn(32),
        spark.LongType: types.IntegerColumn(64),
        spark.FloatType: types.FloatColumn(32),
        spark.DoubleType: types.FloatColumn(64),
        spark.StringType: types.StringColumn(),
        spark.VarcharType: types.StringColumn(),
        spark.CharType: types.StringColumn(),
        spark.BinaryType: types.BinaryColumn(),
        spark.DateType: types.DateColumn(),
        spark.TimestampType: types.TimestampColumn(True),
        spark.TimestampNTZType: types.TimestampColumn(False),
    }
    found = plain.get(type(data_type))
    if found is None:
        raise OptionError(
            "BAD_COLUMN",
            f"the column '{name}' has the type {data_type.simpleString()}, which typed topics "
            "don't have: cast it, for example to string, or leave it out",
        )
    return found
