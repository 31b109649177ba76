"""The partitions that a source is to read."""

import pytest

from connector.errors import OptionError
from connector.options.source_options import parse_source_options
from connector.options.subscription import AssignedPartitions, TopicPattern
from connector.tests.options.parsed import SERVERS, assert_refused, source
from storage_engine.core.ids import TopicPartition


def test_assign_and_pattern_are_understood():
    assigned = parse_source_options(SERVERS | {"assign": '{"t":[1,0]}'})
    assert assigned.subscription == AssignedPartitions(
        partitions=(TopicPartition("t", 0), TopicPartition("t", 1))
    )
    pattern = parse_source_options(SERVERS | {"subscribePattern": "t.*"})
    assert pattern.subscription == TopicPattern(regex="t.*")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"assign": '{"t":[0]}'}, "not 'subscribe' and 'assign'"),
        ({"subscribe": " , "}, "one topic or more"),
        ({"subscribe": "a b"}, "characters other than"),
    ],
)
def test_a_subscription_that_is_none_is_one_line(options, message):
    assert_refused(source, options, message)


def test_a_pattern_that_is_no_regular_expression_is_one_line():
    with pytest.raises(OptionError, match=r"'subscribePattern' must be a regular expression \("):
        parse_source_options(SERVERS | {"subscribePattern": "t.*("})
