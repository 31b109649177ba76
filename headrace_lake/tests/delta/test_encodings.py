"""What the columns of a data file are encoded by, at any depth."""

import pyarrow.parquet as pq

from headrace_lake.delta.data_files import RowFiles
from headrace_lake.delta.store import TableStore
from headrace_lake.tests.lake_tables import EXACT, exact_rows

TEXT = {"text", "tags.list.element", "names.key_value.key", "who.name", "_topic"}
WHOLE = {"tiny", "small", "whole", "large", "day", "at", "local", "took", "names.key_value.value"}
WHOLE |= {"who.age", "_partition", "_offset", "_timestamp"}


def test_strings_have_dictionaries_and_whole_numbers_and_times_are_packed(tmp_path):
    files = RowFiles(TableStore(str(tmp_path)), EXACT.row_schema, order=0)
    files.write(exact_rows(0, 40))
    (made,) = files.finish()
    group = pq.read_metadata(tmp_path / made.path).row_group(0)
    columns = [group.column(each) for each in range(group.num_columns)]
    found = {each.path_in_schema: set(each.encodings) for each in columns}
    assert {path for path, by in found.items() if "RLE_DICTIONARY" in by} == TEXT
    assert {path for path, by in found.items() if "DELTA_BINARY_PACKED" in by} == WHOLE
