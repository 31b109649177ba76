"""delta-spark reads a table equal, where `headrace bench lake` has fetched it."""

import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.arguments import default_folder
from benchmarks.lake.jars import DELTA, DELTA_SETTINGS, delta_environment
from headrace_lake.delta.compaction import compact
from headrace_lake.tests.lake_tables import EXACT, exact_row, exact_rows, opened, write
from storage_engine.tests.sampling import in_full

ROWS = 40
JARS = sorted((default_folder() / DELTA.folder).glob("*.jar"))
SETTINGS = {
    **DELTA_SETTINGS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@in_full
@pytest.mark.skipif(not JARS, reason="`headrace bench lake` has not fetched its jars")
def test_delta_spark_reads_each_row_of_a_table(tmp_path):
    folder, out = tmp_path / "table", tmp_path / "out"
    table = opened(folder, EXACT)
    for first in range(0, 30, 5):
        write(table, exact_rows(first, first + 5), first or None, first + 5, shape=EXACT)
    assert compact(opened(folder, EXACT), 10**6, whole_tail=True).files_after == 1
    write(table, exact_rows(30, ROWS), 30, ROWS, shape=EXACT)
    reader = Path(__file__).with_name("spark_reader.py")
    command = [delta_environment(default_folder()), reader, ",".join(map(str, JARS)), folder, out]
    settings = [f"{name}={value}" for name, value in SETTINGS.items()]
    done = subprocess.run(
        [*command, *settings], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    names = EXACT.row_schema.names
    expected = [{name: exact_row(each).get(name) for name in names} for each in range(ROWS)]
    found = pq.read_table(out).select(names).sort_by("_offset").to_pylist()
    assert found == expected
