"""Every type of Spark in every database, as a value and in the key: what is read is equal to what
was written, or it is refused by one line and nothing is there. Source: R-SPARK4.
"""

import datetime
import math
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.sql import types as spark

from connector.database.column_kinds import MARIADB, POSTGRESQL, SQLITE
from connector.database.keyed_table import KeyedTable, database
from connector.errors import ConnectorError
from integration_tests.keyed_sink.databases import (
    database_url,
    mariadb_server,
    postgres_server,
)
from storage_engine.tests.sampling import a_third

__all__ = ["database_url", "mariadb_server", "postgres_server"]

UTC = datetime.UTC
EDGE_OF_DAYS = [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]
NEW_YORK = "America/New_York"
"""The zone in which Arrow has the times of a session that is there."""


def times(zone):
    made = [
        datetime.datetime(1, 1, 1),
        datetime.datetime(1582, 10, 10, 12),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
        # One hour of the clock, twice, in New York; one that is not there.
        datetime.datetime(2026, 11, 1, 5, 30),
        datetime.datetime(2026, 11, 1, 6, 30),
        datetime.datetime(2026, 3, 8, 2, 30),
        datetime.datetime(2026, 3, 8, 7, 30, 0, 1),
        datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ]
    return [each.replace(tzinfo=zone) for each in made]


def integers(bits):
    return [-(2 ** (bits - 1)), -1, 0, 1, 2 ** (bits - 1) - 1]


TEXTS = [
    "", " ", "a", "A", "a ", "a  ", "á", "a\u0301", "ß", "ss", "Ⅻ", "😀", "\u200b", "\uffff", "\n",
    "007", "7", "7.0", "NaN", "null", "'", '"', "\\", "%s", "%(a)s", ":a", "?", "x" * 249,
]  # fmt: skip
BYTES = [b"", b"\0", b"\0\0", b" ", b"a", b"A", b"a ", b"\xff" * 99, b"\\x00", b"%s"]
DOUBLES = [
    0.0, 0.1, -1.5, 1 / 3, 123456789.123456789, 2.0**53 + 2, 5e-324, 2.2250738585072014e-308,
    1.7976931348623157e308,
]  # fmt: skip
FLOATS = [0.0, -1.5, 0.10000000149011612, 1.401298464324817e-45, 3.4028234663852886e38, 16777216.0]

KEPT = {
    "boolean": (spark.BooleanType(), pa.bool_(), [True, False]),
    "byte": (spark.ByteType(), pa.int8(), integers(8)),
    "short": (spark.ShortType(), pa.int16(), integers(16)),
    "integer": (spark.IntegerType(), pa.int32(), integers(32)),
    "long": (spark.LongType(), pa.int64(), [*integers(64), 2**53 + 1]),
    "float": (spark.FloatType(), pa.float32(), FLOATS),
    "double": (spark.DoubleType(), pa.float64(), DOUBLES),
    "decimal(20,0)": (
        spark.DecimalType(20, 0),
        pa.decimal128(20, 0),
        [Decimal(12345678901234567890 + each) for each in range(4)],
    ),
    "decimal(38,0)": (
        spark.DecimalType(38, 0),
        pa.decimal128(38, 0),
        [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0)],
    ),
    "decimal(38,18)": (
        spark.DecimalType(38, 18),
        pa.decimal128(38, 18),
        [Decimal("12345678901234567890.123456789012345678"), Decimal("1E-18"), Decimal(0)],
    ),
    "decimal(38,38)": (
        spark.DecimalType(38, 38),
        pa.decimal128(38, 38),
        [Decimal("." + "9" * 38), Decimal("-1E-38"), Decimal(0)],
    ),
    "date": (
        spark.DateType(),
        pa.date32(),
        [*EDGE_OF_DAYS, datetime.date(1582, 10, 10), datetime.date(1970, 1, 1)],
    ),
    "timestamp": (spark.TimestampType(), pa.timestamp("us", NEW_YORK), times(UTC)),
    "timestamp_ntz": (spark.TimestampNTZType(), pa.timestamp("us"), times(None)),
    "string": (spark.StringType(), pa.string(), TEXTS),
    "large string": (spark.StringType(), pa.large_string(), TEXTS),
    "binary": (spark.BinaryType(), pa.binary(), BYTES),
}

BEYOND_US = 253_402_300_800_000_000
"""The year 10000."""

KEPT_BY_SOME = {
    "NaN": ("double", math.nan, {POSTGRESQL}),
    "float NaN": ("float", math.nan, {POSTGRESQL}),
    "infinity": ("double", math.inf, {POSTGRESQL, SQLITE}),
    "-infinity": ("float", -math.inf, {POSTGRESQL, SQLITE}),
    "NUL": ("string", "a\0b", {SQLITE, MARIADB}),
    "the year 10000": ("timestamp", BEYOND_US, set()),
    "the year 0": ("timestamp_ntz", -62_135_596_800_000_001, set()),
    "the day 10000-01-01": ("date", 2_932_897, set()),
    "the day before the year 1": ("date", -719_163, set()),
}
"""Kind, value, and the databases that keep it."""


class Column:
    """A table of one column of a kind, and of one that numbers the rows; either is the key."""

    def __init__(self, url, kind, *, in_key):
        self.type, self.arrow, self.values = KEPT[kind]
        self._url, self._name = url, f"t_{uuid.uuid4().hex}"
        self._key = ("v",) if in_key else ("n",)
        self._batch = 0

    def write(self, values):
        self._batch += 1
        schema = spark.StructType().add("n", "long").add("v", self.type)
        rows = pa.record_batch({"n": pa.array(range(len(values)), pa.int64()), "v": values})
        with database(self._url, {}) as engine:
            table = KeyedTable(engine, self._name, key=self._key, schema=schema)
            assert table.write(self._name, self._batch, [rows])

    def rows(self):
        """As the driver of the database gives them, without SQLAlchemy's types."""
        with database(self._url, {}) as engine, engine.connect() as connection:
            rows = connection.execute(sa.text(f"SELECT n, v FROM {self._name}")).all()
        found = {int(row[0]): self._value(row[1]) for row in rows}
        assert len(found) == len(rows)
        return [found[each] for each in sorted(found)]

    def _value(self, value):
        """In the form in which it was given, where a database has another one."""
        if value is None:
            return None
        match self.type:
            case spark.BooleanType():
                assert value in (0, 1)
                return bool(value)
            case spark.DecimalType():
                return value if isinstance(value, Decimal) else Decimal(self._of_text(value))
            case spark.DateType():
                text = isinstance(value, str)
                return datetime.date.fromisoformat(value) if text else value
            case spark.TimestampType() | spark.TimestampNTZType():
                if isinstance(value, str):
                    value = datetime.datetime.fromisoformat(value)
                if isinstance(self.type, spark.TimestampNTZType):
                    return value
                aware = value.replace(tzinfo=UTC) if value.tzinfo is None else value
                return aware.astimezone(UTC)
            case spark.BinaryType():
                return bytes(value)
            case _:
                return value

    def _of_text(self, value):
        assert isinstance(value, str)
        return value


@pytest.fixture
def name(database_url):
    return next(each for each in (SQLITE, POSTGRESQL, MARIADB) if each[:5] in _like(database_url))


def _like(url):
    return MARIADB if url.startswith("mysql") else url


@pytest.mark.parametrize("kind", a_third(KEPT))
def test_what_is_read_is_equal_to_what_was_written(database_url, kind):
    column = Column(database_url, kind, in_key=False)
    values = [*column.values, None]
    column.write(pa.array(values, column.arrow))
    read = column.rows()
    assert read == values
    assert [type(each) for each in read] == [type(each) for each in values]


@pytest.mark.parametrize("kind", a_third(KEPT))
def test_each_key_is_one_row_and_the_same_when_it_comes_again(database_url, kind):
    column = Column(database_url, kind, in_key=True)
    for _ in range(2):
        column.write(pa.array(column.values, column.arrow))
        assert column.rows() == column.values


def test_a_session_in_another_zone_finds_the_rows_again(database_url):
    column = Column(database_url, "timestamp", in_key=True)
    for zone in ("UTC", "Asia/Tokyo", NEW_YORK):
        column.write(pa.array(column.values, pa.timestamp("us", zone)))
        assert column.rows() == column.values


def test_both_zeros_are_one_key_as_they_are_for_spark(database_url):
    column = Column(database_url, "double", in_key=True)
    column.write(pa.array([0.0, -0.0]))
    assert column.rows() == [0.0]


@pytest.mark.parametrize("what", a_third(KEPT_BY_SOME))
@pytest.mark.parametrize("in_key", [False, True], ids=["value", "key"])
def test_a_value_that_the_database_lacks_is_one_line_and_no_row(database_url, name, what, in_key):
    kind, value, keep_it = KEPT_BY_SOME[what]
    column = Column(database_url, kind, in_key=in_key)
    whole = not isinstance(value, float | str)
    first = pa.array(column.values[:1], column.arrow)
    bad = pa.array([value], pa.int32() if kind == "date" else pa.int64()) if whole else None
    bad = pa.array([value], column.arrow) if bad is None else bad.view(column.arrow)
    written = pa.chunked_array([first, bad]).combine_chunks()
    if name in keep_it:
        column.write(written)
        assert repr(column.rows()) == repr([*column.values[:1], value])
        return
    with pytest.raises(
        ConnectorError, match=r"^\[ROW_DOES_NOT_FIT\] the column 'v' has "
    ) as raised:
        column.write(written)
    assert "\n" not in str(raised.value)
    assert column.rows() == []
    column.write(first)
    assert column.rows() == column.values[:1]


def test_text_that_is_not_utf_8_is_one_line(database_url):
    """Spark casts any bytes to a string."""
    column = Column(database_url, "string", in_key=False)
    text = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(ConnectorError, match=r"^\[ROW_DOES_NOT_FIT\] .* text that is not UTF-8"):
        column.write(text)
    assert column.rows() == []
