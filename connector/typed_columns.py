"""The columns of typed topics, as Spark has them: its types and theirs, and the columns that tell
where a row comes from.

Spark's types of a topic's columns are all nullable, nested parts too: rows of older versions of the
schema lack columns, and a tombstone has only its key.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from connector.errors import OptionError
from storage_engine.core.typed.column_types import (
    ArrayColumn,
    BinaryColumn,
    BooleanColumn,
    ColumnType,
    DateColumn,
    DecimalColumn,
    FloatColumn,
    IntegerColumn,
    IntervalColumn,
    MapColumn,
    StringColumn,
    StructColumn,
    StructColumnField,
    TimestampColumn,
)
from storage_engine.core.typed.topic_schema import METADATA_COLUMNS as METADATA_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

TOPIC = "_topic"
PARTITION = "_partition"
OFFSET = "_offset"
TIMESTAMP = "_timestamp"
HEADERS = "_headers"
DELETED = "_deleted"


@cache
def metadata_types() -> "Mapping[str, DataType]":
    """Spark's types of METADATA_COLUMNS."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        BooleanType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    return {
        TOPIC: StringType(),
        PARTITION: IntegerType(),
        OFFSET: LongType(),
        TIMESTAMP: TimestampType(),
        HEADERS: ArrayType(header),
        DELETED: BooleanType(),
    }


def spark_type(column_type: ColumnType) -> "DataType":
    """Spark's type of a topic's column."""
    from pyspark.sql import types as spark

    match column_type:
        case IntegerColumn(bits):
            integers = {8: spark.ByteType, 16: spark.ShortType, 32: spark.IntegerType}
            return integers.get(bits, spark.LongType)()
        case FloatColumn(bits):
            return spark.FloatType() if bits == 32 else spark.DoubleType()
        case DecimalColumn(precision, scale):
            return spark.DecimalType(precision, scale)
        case TimestampColumn(with_zone):
            return spark.TimestampType() if with_zone else spark.TimestampNTZType()
        case IntervalColumn():
            return spark.DayTimeIntervalType()
        case ArrayColumn(element, _):
            return spark.ArrayType(spark_type(element))
        case MapColumn(key, value, _):
            return spark.MapType(spark_type(key), spark_type(value))
        case StructColumn(fields):
            return spark.StructType(
                [spark.StructField(each.name, spark_type(each.type)) for each in fields]
            )
    plain: dict[type, DataType] = {
        BooleanColumn: spark.BooleanType(),
        StringColumn: spark.StringType(),
        BinaryColumn: spark.BinaryType(),
        DateColumn: spark.DateType(),
    }
    return plain[type(column_type)]


def column_type_of(name: str, data_type: "DataType") -> ColumnType:
    """A topic's type for a column of a DataFrame, nested parts nullable. OptionError BAD_COLUMN
    where no topic has such a type."""
    from pyspark.sql import types as spark

    match data_type:
        case spark.DecimalType():
            return DecimalColumn(data_type.precision, data_type.scale)
        case spark.DayTimeIntervalType():
            return IntervalColumn()
        case spark.ArrayType():
            return ArrayColumn(column_type_of(name, data_type.elementType))
        case spark.MapType():
            return MapColumn(
                column_type_of(name, data_type.keyType), column_type_of(name, data_type.valueType)
            )
        case spark.StructType():
            return StructColumn(
                tuple(
                    StructColumnField(each.name, column_type_of(name, each.dataType))
                    for each in data_type.fields
                )
            )
    plain: dict[type[DataType], ColumnType] = {
        spark.BooleanType: BooleanColumn(),
        spark.ByteType: IntegerColumn(8),
        spark.ShortType: IntegerColumn(16),
        spark.IntegerType: IntegerColumn(32),
        spark.LongType: IntegerColumn(64),
        spark.FloatType: FloatColumn(32),
        spark.DoubleType: FloatColumn(64),
        spark.StringType: StringColumn(),
        spark.VarcharType: StringColumn(),
        spark.CharType: StringColumn(),
        spark.BinaryType: BinaryColumn(),
        spark.DateType: DateColumn(),
        spark.TimestampType: TimestampColumn(True),
        spark.TimestampNTZType: TimestampColumn(False),
    }
    found = plain.get(type(data_type))
    if found is None:
        raise OptionError(
            "BAD_COLUMN",
            f"the column '{name}' has the type {data_type.simpleString()}, which typed topics "
            "don't have: cast it, for example to string, or leave it out",
        )
    return found
