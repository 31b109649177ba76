"""The columns, as Spark and as Arrow see them. The Arrow schema must be exactly the one that Spark
derives from its own, or Spark refuses the first record batch.

Columns read and written are those of Spark's Kafka connector.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from connector.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

HEADERS_DDL = "array<struct<key:string,value:binary>>"

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns that the source yields unless an option says otherwise, in this order."""

ALL_COLUMNS = (*COLUMNS, "headers")


@cache
def source_schema(columns: tuple[str, ...]) -> "StructType":
    """The schema of the source. `columns` are some of ALL_COLUMNS in their order."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types = {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": ArrayType(header),
    }
    return StructType([StructField(name, types[name]) for name in columns])


@cache
def source_arrow_schema(columns: tuple[str, ...]) -> "pa.Schema":
    """The source's schema for Arrow. A test compares it with pyspark's own conversion."""
    import pyarrow as pa

    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": headers_arrow_type(),
    }
    return pa.schema([pa.field(name, types[name]) for name in columns])


def headers_arrow_type() -> "pa.DataType":
    """`list<element: struct<key: string, value: binary>>`, with the names that Spark gives."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.list_(pa.field("element", header))


def check_user_schema(schema: "StructType", *, columns: tuple[str, ...]) -> None:
    """OptionError when the user gave the reader another schema than the source's, which is
    fixed."""
    expected = source_schema(columns)
    if [(field.name, field.dataType) for field in schema] != [
        (field.name, field.dataType) for field in expected
    ]:
        raise OptionError(
            "BAD_SCHEMA",
            f"the source has its own schema, leave out .schema(…): {expected.simpleString()}",
        )


def check_sink_schema(
    schema: "StructType", *, topic_option: str | None, origin: Sequence[str] = ()
) -> None:
    """OptionError when rows of `schema` can't be made into records, because a column is missing,
    unknown or of a wrong type. `origin`: the columns of `idempotentKey` in lower case, which are
    not a part of the record."""
    types = {field.name.lower(): field.dataType for field in schema.fields}
    if len(types) != len(schema.fields):
        raise OptionError(
            "BAD_COLUMN", "two columns to be written have the same name, upper and lower case aside"
        )
    take_origin(types, origin)
    allowed = _sink_column_types()
    for name, data_type in types.items():
        if name not in allowed:
            raise OptionError(
                "BAD_COLUMN",
                f"the column '{name}' can't be written; the columns of a record are "
                f"{', '.join(allowed)}",
            )
        if not any(_matches(data_type, possible) for possible in allowed[name]):
            raise OptionError(
                "BAD_COLUMN",
                f"the column '{name}' must be "
                f"{' or '.join(possible.simpleString() for possible in allowed[name])}, "
                f"not {data_type.simpleString()}; cast it",
            )
    if "value" not in types:
        raise OptionError("BAD_COLUMN", "the column 'value' is missing")
    if topic_option is None and "topic" not in types:
        remark = "; that of idempotentKey says where a row comes from" * ("topic" in origin)
        raise OptionError(
            "MISSING_OPTION",
            "no topic is given: set the option 'topic' or add a column 'topic'" + remark,
        )


def take_origin(types: "dict[str, DataType]", origin: Sequence[str]) -> None:
    """Checks the columns of `idempotentKey` and removes them from `types`."""
    wanted = (("string",), ("int",), ("bigint", "int"))
    for name, possible in zip(origin, wanted, strict=False):
        data_type = types.pop(name, None)
        if data_type is None:
            raise OptionError(
                "BAD_COLUMN", f"the column '{name}', which idempotentKey names, is missing"
            )
        if data_type.simpleString() not in possible:
            raise OptionError(
                "BAD_COLUMN",
                f"the column '{name}' of idempotentKey must be {' or '.join(possible)}, "
                f"not {data_type.simpleString()}; cast it",
            )


@cache
def _sink_column_types() -> "dict[str, tuple[DataType, ...]]":
    from pyspark.sql.types import BinaryType, IntegerType, StringType

    headers = source_schema(ALL_COLUMNS)["headers"].dataType
    bytes_like: tuple[DataType, ...] = (StringType(), BinaryType())
    return {
        "key": bytes_like,
        "value": bytes_like,
        "headers": (headers,),
        "topic": (StringType(),),
        "partition": (IntegerType(),),
    }


def _matches(data_type: "DataType", possible: "DataType") -> bool:
    """Whether both are equal, nullability aside."""
    return data_type.simpleString() == possible.simpleString()
