"""The columns of the demo's topics, in Spark's words. Whoever writes, reads or checks a topic has
them from here; the job of Spark has them from the brokers.
"""

from dataclasses import dataclass

import pyarrow as pa

from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import new_schema
from storage_engine.protocol.typed.arrow_types import arrow_schema


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicColumns:
    """The schema of a topic."""

    ddl: str
    key: tuple[str, ...]
    """The columns of the key: rows with equal keys go to one partition, in the order of arrival."""
    time: str
    """The column with the row's event time."""

    @property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of the rows that readers get."""
        return arrow_schema(new_schema(parse_ddl(self.ddl), self.key).latest.visible)


FLIGHTS = TopicColumns(
    ddl="origin STRING, scheduled TIMESTAMP, hour BIGINT, carrier STRING, flight BIGINT,"
    " tailnum STRING, dest STRING, dep_delay BIGINT, arr_delay BIGINT, air_time BIGINT,"
    " distance BIGINT",
    key=("origin",),
    time="scheduled",
)
WEATHER = TopicColumns(
    ddl="origin STRING, observed TIMESTAMP, hour BIGINT, temp DOUBLE, dewp DOUBLE, humid DOUBLE,"
    " wind_dir BIGINT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE,"
    " visib DOUBLE",
    key=("origin",),
    time="observed",
)
DELAYS = TopicColumns(
    ddl="airport STRING, hour TIMESTAMP, hour_of_day BIGINT, flights BIGINT, departed BIGINT,"
    " delay_minutes BIGINT, mean_delay DOUBLE, max_delay BIGINT, temp DOUBLE, wind_speed DOUBLE,"
    " precip DOUBLE, visib DOUBLE",
    key=("airport", "hour"),
    time="hour",
)
TOPICS = {"flights": FLIGHTS, "weather": WEATHER, "delays": DELAYS}
