"""Columns in the types of a log."""

import pyarrow as pa

from headrace_lake.history.log_columns import as_log_type

SPAN = pa.duration("us")


def test_a_part_of_a_nested_column_is_that_part_in_the_other_type():
    struct = pa.struct([pa.field("took", pa.int64(), nullable=False), ("name", pa.large_string())])
    values = [[{"took": n, "name": f"n{n}"}] * (n % 3) if n % 4 else None for n in range(12)]
    given = pa.array(values, pa.list_(pa.field("item", struct, nullable=False)))
    wanted = pa.list_(pa.field("element", pa.struct([("took", SPAN), ("name", pa.string())])))
    for first, count in ((0, 12), (3, 7)):
        found = as_log_type(pa.chunked_array([given.slice(first, count)]), wanted)
        assert found.type == wanted
        found.validate(full=True)
        assert found.equals(pa.array(values[first : first + count], wanted))
    several = pa.chunked_array([given.slice(0, 5), given.slice(5)])
    assert as_log_type(several, wanted).equals(pa.array(values, wanted))
