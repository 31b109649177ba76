"""Types of Spark that a database has no column for are refused before the first row."""

import pytest
import sqlalchemy as sa
from pyspark.sql import types as spark

from connector.database.column_kinds import MARIADB, MYSQL, POSTGRESQL, SQLITE, column_type
from connector.database.keyed_table import KeyedTable, database
from connector.errors import ConnectorError

REFUSED = [
    spark.ArrayType(spark.IntegerType()),
    spark.MapType(spark.StringType(), spark.IntegerType()),
    spark.StructType().add("a", "integer"),
    spark.NullType(),
    spark.DayTimeIntervalType(),
    spark.YearMonthIntervalType(),
]
BAD_COLUMN = r"^\[BAD_COLUMN\] the column 'v' is [^\n]*; cast it[^\n]*$"


@pytest.mark.parametrize("data_type", REFUSED, ids=lambda each: each.typeName())
@pytest.mark.parametrize("in_key", [False, True])
def test_a_type_without_a_column_is_one_line_and_no_table_is_made(tmp_path, data_type, in_key):
    for name in (SQLITE, POSTGRESQL, MYSQL, MARIADB):
        with pytest.raises(ConnectorError, match=BAD_COLUMN):
            column_type("v", data_type, name, in_key=in_key)
    schema = spark.StructType().add("n", "long").add("v", data_type)
    with database(f"sqlite:///{tmp_path}/database", {}) as engine:
        with pytest.raises(ConnectorError, match=BAD_COLUMN):
            KeyedTable(engine, "refused", key=("v" if in_key else "n",), schema=schema)
        assert not sa.inspect(engine).has_table("refused")


def test_mysql_alone_has_decimals_of_thirty_digits_behind_the_point():
    most, more = spark.DecimalType(38, 30), spark.DecimalType(38, 31)
    assert column_type("v", most, MYSQL, in_key=False).scale == 30
    with pytest.raises(ConnectorError, match="MySQL keeps 30 digits of a scale"):
        column_type("v", more, MYSQL, in_key=False)
    for name in (POSTGRESQL, MARIADB):
        assert column_type("v", more, name, in_key=False).scale == 31
