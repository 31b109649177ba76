"""Random DataFrames: columns of every type that Spark passes as Arrow, nested ones too, with nulls,
empty and extreme values."""

import random
import string
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

MAX_DEPTH = 3
MOST_ELEMENTS = 3
NULLS = 0.2

_INTEGERS = {
    spark_types.ByteType: 8,
    spark_types.ShortType: 16,
    spark_types.IntegerType: 32,
    spark_types.LongType: 64,
}
_PLAIN: list[Any] = [
    spark_types.BooleanType,
    *_INTEGERS,
    spark_types.FloatType,
    spark_types.DoubleType,
    spark_types.StringType,
    spark_types.BinaryType,
    spark_types.DateType,
    spark_types.TimestampType,
    spark_types.TimestampNTZType,
    spark_types.DayTimeIntervalType,
]
_TEXT = [*string.printable[:70], "\0", "ü", "語", "\N{GRINNING FACE}", "'", '"', "\\"]


def random_frame(
    spark: SparkSession, chance: random.Random, *, columns: int, rows: int
) -> DataFrame:
    """The column `n` counts the rows; the others are random, and each plain type may be among
    them."""
    types = [spark_types.LongType(), *(random_type(chance) for _ in range(columns))]
    schema = spark_types.StructType(
        [
            spark_types.StructField("n" if number == 0 else f"Column {number}", each, number > 0)
            for number, each in enumerate(types)
        ]
    )
    data = [(number, *(random_value(chance, each) for each in types[1:])) for number in range(rows)]
    return spark.createDataFrame(data, schema)


def random_type(chance: random.Random, depth: int = 1) -> Any:
    kind = chance.randrange(10 if depth < MAX_DEPTH else 7)
    if kind < 6:
        return chance.choice(_PLAIN)()
    if kind == 6:
        precision = chance.randint(1, 38)
        return spark_types.DecimalType(precision, chance.randint(0, precision))
    inner = [random_type(chance, depth + 1) for _ in range(chance.randint(1, 3))]
    if kind == 7:
        return spark_types.ArrayType(inner[0])
    if kind == 8:
        return spark_types.MapType(spark_types.StringType(), inner[0])
    fields = [spark_types.StructField(f"f{number}", each) for number, each in enumerate(inner)]
    return spark_types.StructType(fields)


def random_value(chance: random.Random, kind: Any, *, nullable: bool = True) -> Any:
    if nullable and chance.random() < NULLS:
        return None
    bits = _INTEGERS.get(type(kind))
    if bits is not None:
        return chance.choice([0, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, chance.randint(-99, 99)])
    count = chance.randint(0, MOST_ELEMENTS)
    match kind:
        case spark_types.ArrayType():
            return [random_value(chance, kind.elementType) for _ in range(count)]
        case spark_types.MapType():
            return {f"k{each}": random_value(chance, kind.valueType) for each in range(count)}
        case spark_types.StructType():
            return tuple(random_value(chance, each.dataType) for each in kind.fields)
        case spark_types.DecimalType():
            largest = 10**kind.precision - 1
            digits = chance.choice([0, largest, -largest, chance.randint(-largest, largest)])
            return Decimal((digits < 0, tuple(map(int, str(abs(digits)))), -kind.scale))
    return _plain_value(chance, kind)


def _plain_value(chance: random.Random, kind: Any) -> Any:
    seconds = chance.choice([0, -1, 10**9, chance.randint(-(10**10), 10**10)])
    moment = timedelta(seconds=seconds, microseconds=chance.randrange(10**6))
    text = "".join(chance.choices(_TEXT, k=chance.choice([0, 1, 5, 40])))
    match kind:
        case spark_types.BooleanType():
            return chance.random() < 0.5
        case spark_types.FloatType():
            return chance.choice([0.0, -0.0, 1.5, -(2.0**100), float("inf"), 2.0**-140])
        case spark_types.DoubleType():
            return chance.choice([0.0, -0.0, 1 / 3, -1e300, float("-inf"), 5e-324])
        case spark_types.StringType():
            return text
        case spark_types.BinaryType():
            return bytearray(chance.randbytes(len(text)))
        case spark_types.DateType():
            return date(1970, 1, 1) + timedelta(days=chance.randint(-700_000, 2_900_000))
        case spark_types.TimestampType():
            return datetime(1970, 1, 1, tzinfo=UTC) + moment
        case spark_types.TimestampNTZType():
            return datetime(1970, 1, 1) + moment
    return moment
