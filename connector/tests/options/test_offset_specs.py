"""The start and the end of a read, as users write them."""

import pytest

from connector.options.offset_specs import EARLIEST, LATEST, Everywhere, PerPartition
from connector.tests.options.parsed import assert_refused, source
from storage_engine.core.ids import TopicPartition


def test_starting_offsets_take_words_and_json():
    assert source(startingOffsets="Earliest").starting == Everywhere(special=EARLIEST)
    assert source(startingOffsets="latest").starting == Everywhere(special=LATEST)
    assert source(startingOffsets='{"t":{"0":23,"1":-2}}').starting == PerPartition(
        offsets={TopicPartition("t", 0): 23, TopicPartition("t", 1): EARLIEST}
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "first"}, "'startingOffsets' must be 'earliest', 'latest' or JSON"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "must be an offset, -1 or -2"),
        ({"startingOffsets": '{"t":{"0":true}}'}, "'startingOffsets' must be"),
        ({"startingOffsets": '{"t":[0]}'}, "'startingOffsets' must be"),
        ({"startingOffsets": "{}"}, "'startingOffsets' must be"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "must be ms since 1970"),
    ],
)
def test_offsets_that_are_none_are_one_line(options, message):
    assert_refused(source, options, message)
