"""What upkeep makes of a table that is committed to for a week, twice a minute, when nothing is old
enough to be dropped yet."""

import deltalake
import numpy as np
import pyarrow as pa
import pytest

from headrace_lake.delta import upkeep
from headrace_lake.delta.table import CHECKPOINT_INTERVAL
from headrace_lake.delta.upkeep import TableUpkeep, UpkeepSettings, last_checkpoint
from headrace_lake.service.table_task import TEND_COMMITS
from headrace_lake.tests.lake_tables import BEGIN, PLAIN, opened, write
from storage_engine.tests.sampling import in_full

COMMIT_ROWS = 200


def rows_of(first: int, count: int) -> pa.Table:
    """Rows that are as hard to compress in a small file as in a large one."""
    places = np.arange(first, first + count)
    random = np.random.default_rng(first)
    return pa.table(
        {
            "id": random.integers(-(2**62), 2**62, count),
            "text": pa.array(random.bytes(8).hex() for _ in range(count)),
            "_topic": pa.repeat("trips", count),
            "_partition": pa.array(np.zeros(count, np.int32)),
            "_offset": places,
            "_timestamp": pa.array(places * 1000 + int(BEGIN.timestamp()) * 1_000_000),
        }
    ).cast(PLAIN.row_schema)


@pytest.mark.parametrize(
    ("commits", "target_bytes"), [(210, 1 << 16), pytest.param(20_160, 1 << 19, marks=in_full)]
)
def test_active_files_stay_as_few_as_those_of_one_write(
    tmp_path, monkeypatch, commits, target_bytes
):
    monkeypatch.setattr(upkeep, "TAIL_INTERVAL", commits // 7)
    folder = tmp_path / "table"
    table = opened(folder)
    tended = TableUpkeep(opened(folder), UpkeepSettings(target_bytes=target_bytes))
    count = commits * COMMIT_ROWS
    for first in range(0, count, COMMIT_ROWS):
        write(table, rows_of(first, COMMIT_ROWS), first or None, first + COMMIT_ROWS)
        if (first // COMMIT_ROWS) % TEND_COMMITS == TEND_COMMITS - 1:
            tended.tidy()
    reader = deltalake.DeltaTable(str(folder))
    sizes = pa.table(reader.get_add_actions())["size_bytes"].to_pylist()
    offsets = reader.to_pyarrow_table(columns=["_offset"])["_offset"].to_numpy()
    assert np.array_equal(np.sort(offsets), np.arange(count))
    # Those that came since the whole tail was put together last are small.
    assert len(sizes) <= 1.2 * sum(sizes) / target_bytes + 2 * TEND_COMMITS
    assert reader.version() - last_checkpoint(table) < CHECKPOINT_INTERVAL + 2 * TEND_COMMITS
