"""Errors as answers of the console."""

from typing import Any

import pytest

from headrace_console.problem import MAX_MESSAGE, ConsoleError, as_console_error
from storage_engine.core.errors import (
    AuthenticationError,
    ConfigError,
    DeadlineExceededError,
    ErrorCode,
    HeadraceError,
    KafkaError,
    UnsupportedVersionError,
)


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (AuthenticationError("no"), "log_in", 401),
        (ConfigError("no"), "bad_request", 400),
        (UnsupportedVersionError("no"), "not_here", 501),
        (DeadlineExceededError("no"), "no_answer", 504),
        (KafkaError("no", ErrorCode.TOPIC_ALREADY_EXISTS), "conflict", 409),
        (KafkaError("no", ErrorCode.GROUP_ID_NOT_FOUND), "not_found", 404),
        (KafkaError("no", ErrorCode.TOPIC_AUTHORIZATION_FAILED), "not_allowed", 403),
        (KafkaError("no", ErrorCode.INVALID_CONFIG), "bad_request", 400),
        (KafkaError("no", ErrorCode.NOT_CONTROLLER), "cluster", 502),
        (HeadraceError("no"), "cluster", 502),
    ],
)
def test_an_error_of_the_client_becomes_the_answer_that_says_who_can_help(error, code, status):
    answer = as_console_error(error)
    assert (answer.code, answer.status, str(answer)) == (code, status, "no")


def test_an_answer_stays_the_one_that_it_is():
    error = ConsoleError("too_many", "wait", retry_after_s=5)
    assert as_console_error(error) is error


def test_a_message_that_quotes_a_request_is_cut_and_has_no_control_characters():
    document: Any = ConsoleError("bad_request", "\x1b[31m" + "x" * 2 * MAX_MESSAGE).document
    message = document["error"]["message"]
    assert len(message) == MAX_MESSAGE + 1 and message.endswith("x…")
    assert message.isprintable()
