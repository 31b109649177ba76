"""What Spark hands to the keyed sink is in the table as it was, whatever zone its session has.
Source: R-SPARK4.
"""

import datetime
import sqlite3
from decimal import Decimal

import pytest

from connector import ConnectorError, KeyedSink

ROWS = """
SELECT timestamp'2026-11-01 04:30:00Z' + make_dt_interval(0, n) AS at,
       cast(12345678901234567890 + n AS decimal(20,0)) AS id, n
FROM (SELECT cast(id AS int) AS n FROM range(4))
"""


def test_rows_of_sessions_in_other_zones_are_the_same_rows(spark, tmp_path):
    sink = KeyedSink(f"sqlite:///{tmp_path}/database", table="t", key=("at", "id"), query_id="q")
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for batch, other in enumerate(["UTC", "America/New_York", "Asia/Tokyo"]):
            spark.conf.set("spark.sql.session.timeZone", other)
            sink(spark.sql(ROWS), batch)
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    with sqlite3.connect(tmp_path / "database") as connection:
        found = connection.execute("SELECT at, id, n FROM t ORDER BY n").fetchall()
    # New York has the hour from 05:30 to 06:30 twice.
    first = datetime.datetime(2026, 11, 1, 4, 30)
    assert [(datetime.datetime.fromisoformat(at), Decimal(key), n) for at, key, n in found] == [
        (first + datetime.timedelta(hours=n), Decimal(12345678901234567890 + n), n)
        for n in range(4)
    ]


def test_what_the_database_lacks_is_one_line_and_no_row(spark, tmp_path):
    sink = KeyedSink(f"sqlite:///{tmp_path}/database", table="t", key=("n",), query_id="q")
    good = "SELECT 1 AS n, double(0.5) AS x"
    with pytest.raises(ConnectorError) as raised:
        sink(spark.sql(f"{good} UNION ALL SELECT 2, double('NaN')"), 0)
    assert str(raised.value).startswith("[ROW_DOES_NOT_FIT] the column 'x' has NaN")
    sink(spark.sql(good), 0)
    with sqlite3.connect(tmp_path / "database") as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == [(1, 0.5)]
