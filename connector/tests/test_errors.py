"""The errors of the connector: one line, with a code that users can search for."""

import pytest

from connector.data_source import HeadraceDataSource
from connector.errors import ConnectorError, OptionError, in_one_line
from storage_engine.core.errors import (
    AuthenticationError,
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (DeadlineExceededError("t-0 has\n no leader"), "[TIMED_OUT] t-0 has no leader"),
        (AuthenticationError("no such user"), "[AUTHENTICATION_FAILED] no such user"),
        (KafkaError("gone", ErrorCode.UNKNOWN_TOPIC_ID), "[UNKNOWN_TOPIC_ID] gone"),
        (ConfigError("wrong"), "[FAILED] wrong"),
        (OptionError("BAD_OPTION", "'acks' is wrong"), "[BAD_OPTION] 'acks' is wrong"),
    ],
)
def test_an_error_of_the_client_has_a_code(error: HeadraceError, text: str) -> None:
    with pytest.raises(ConnectorError) as raised, in_one_line():
        raise error
    assert str(raised.value).startswith(text)
    assert "\n" not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value is error


def test_the_errors_of_what_spark_calls_have_a_traceback_of_one_frame() -> None:
    with pytest.raises(ConnectorError) as raised:
        HeadraceDataSource({}).schema()
    frames = 0
    traceback = raised.value.__traceback__
    while traceback is not None:
        frames += 1
        traceback = traceback.tb_next
    # The test's own frame, and the wrapper's.
    assert frames == 2
