"""Levels of a broker's loggers, shown and altered as settings. Source: KIP-412."""

import logging

import pytest

from storage_engine.broker.settings.config_store import BROKER_LOGGER_RESOURCE as LOGGERS
from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.settings.settings_requests import (
    APPEND,
    DELETE,
    DONE,
    SET,
    alter,
    answer_to_describe,
    describe,
)

LOGGER = "storage_engine.broker.tests_of_levels"


@pytest.fixture
def logger():
    made = logging.getLogger(LOGGER)
    yield made
    made.setLevel(logging.NOTSET)


def level(topic) -> str:
    return describe(topic, 1, LOGGERS, "1")[LOGGER].value


def test_the_level_of_a_logger_is_shown_set_and_deleted(topic, logger):
    before = level(topic)
    change = (LOGGER, SET, "ERROR")
    assert alter(topic, 1, LOGGERS, "1", change, validate_only=True) == DONE
    assert level(topic) == before
    assert alter(topic, 1, LOGGERS, "1", change) == DONE
    assert level(topic) == "ERROR"
    assert not logger.isEnabledFor(logging.WARNING)
    assert alter(topic, 1, LOGGERS, "1", (LOGGER, DELETE, None)) == DONE
    assert level(topic) == before


@pytest.mark.parametrize(
    "bad",
    [
        ("no.such.logger", SET, "INFO"),
        (LOGGER, SET, "LOUD"),
        ("root", DELETE, None),
        (LOGGER, APPEND, "x"),
    ],
)
def test_of_several_levels_all_are_set_or_none(topic, logger, bad):
    before = level(topic)
    code, _ = alter(topic, 1, LOGGERS, "1", (LOGGER, SET, "FATAL"), bad)
    assert code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)
    assert level(topic) == before
    assert "no.such.logger" not in logging.Logger.manager.loggerDict


def test_loggers_are_those_of_the_broker_that_is_asked(topic):
    answer = answer_to_describe(topic, 1, LOGGERS, "2")
    assert (answer.error_code, list(answer.configs)) == (ErrorCode.INVALID_REQUEST, [])
    code, _ = alter(topic, 1, LOGGERS, "2", ("root", SET, "INFO"))
    assert code is ErrorCode.INVALID_REQUEST
