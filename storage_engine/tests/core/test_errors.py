"""Error codes as the Kafka protocol has them, and errors that are kept."""

import kafka.errors
import pytest

from storage_engine.core.errors import ErrorCode, KafkaError, OffsetOutOfRangeError

OURS_FROM = 10_000
"""Headrace's own codes begin here."""

OTHER_NAMES = {-1, 0, 6, 10, 17, 39, 128}
"""kafka-python has older names for these, such as NOT_LEADER_FOR_PARTITION for 6, and does not know
INVALID_REGULAR_EXPRESSION (KIP-848)."""


def test_numbers_and_names_are_those_of_kafka_python():
    known = {each.errno: each.message for each in kafka.errors.kafka_errors.values()}
    ours = {int(code): code.name for code in ErrorCode if code < OURS_FROM}
    assert len(ours) > 80
    others = {number for number, name in ours.items() if known.get(number) != name}
    assert others == OTHER_NAMES


@pytest.mark.parametrize("number", [-2, 9_999, 32_767])
def test_a_number_that_is_not_in_the_table_is_an_unknown_error(number):
    assert ErrorCode.of(number) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(6) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_error_without_words_says_what_its_code_means():
    assert str(KafkaError(code=ErrorCode.REQUEST_TIMED_OUT)) == ErrorCode.REQUEST_TIMED_OUT.meaning
    assert KafkaError(code=ErrorCode.REQUEST_TIMED_OUT).retriable
    assert str(KafkaError("in words", ErrorCode.REQUEST_TIMED_OUT)) == "in words"


def test_an_error_that_is_kept_holds_no_frame_in_memory():
    try:
        try:
            raise ValueError
        except ValueError:
            raise OffsetOutOfRangeError(log_start_offset=3, log_end_offset=9) from None
    except OffsetOutOfRangeError as error:
        kept = error.as_outcome()
    assert (kept.__traceback__, kept.__context__) == (None, None)
    assert (kept.log_start_offset, kept.log_end_offset) == (3, 9)
