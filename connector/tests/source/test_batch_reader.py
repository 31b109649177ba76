"""A bounded read."""

import pytest
from pyspark.sql.datasource import InputPartition

from connector.errors import OptionError
from connector.source.batch_reader import HeadraceBatchReader
from connector.tests.options.parsed import source


def test_a_read_without_ranges_reads_nothing_also_with_spark_4_0_which_passes_no_partition():
    reader = HeadraceBatchReader(source())
    assert [list(reader.read(each)) for each in (None, InputPartition(None))] == [[], []]


@pytest.mark.parametrize(
    ("option", "text", "word"),
    [
        ("startingOffsets", "latest", "latest"),
        ("startingOffsets", '{"t":{"0":3,"1":-1}}', "latest"),
        ("endingOffsets", "earliest", "earliest"),
        ("endingOffsets", '{"t":{"0":-2}}', "earliest"),
    ],
)
def test_a_batch_read_that_can_hold_nothing_is_refused(option, text, word):
    with pytest.raises(OptionError, match=f"'{option}' can't be {word} "):
        HeadraceBatchReader(source(**{option: text}))
