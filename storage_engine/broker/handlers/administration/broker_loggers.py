"""The loggers of this broker's process, with Kafka's names of levels. Source: KIP-412."""

import logging
from collections.abc import Iterator

from storage_engine.core.errors import ErrorCode, KafkaError

ROOT = "root"

LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    # Python has nothing below DEBUG.
    "TRACE": logging.DEBUG,
}

SET, DELETE = 0, 1
"""The operations of IncrementalAlterConfigs that are supported."""


def levels() -> Iterator[tuple[str, str]]:
    """Yield (name, effective level) of each logger, the root's first."""
    yield ROOT, _named(logging.root.level)
    present = logging.Logger.manager.loggerDict
    for name in sorted(present):
        logger = present[name]
        if isinstance(logger, logging.Logger):
            yield name, _named(logger.getEffectiveLevel())


def check_change(name: str, operation: int, value: str | None) -> None:
    """Raise KafkaError for a change that `change` can't make."""
    _existing(name)
    if operation not in (SET, DELETE):
        raise KafkaError("levels can be set and deleted alone", ErrorCode.INVALID_REQUEST)
    if operation == DELETE and name == ROOT:
        raise KafkaError("the level of the root logger can't be deleted", ErrorCode.INVALID_REQUEST)
    if operation == SET and (value or "").upper() not in LEVELS:
        raise KafkaError(
            f"'{value}' is no level of logger {name}; levels are {', '.join(LEVELS)}",
            ErrorCode.INVALID_CONFIG,
        )


def change(name: str, operation: int, value: str | None) -> None:
    """Change the level until the process ends; DELETE makes it that of the parent logger."""
    logger = _existing(name)
    logger.setLevel(logging.NOTSET if operation == DELETE else LEVELS[(value or "").upper()])


def _existing(name: str) -> logging.Logger:
    if name == ROOT:
        return logging.root
    logger = logging.Logger.manager.loggerDict.get(name)
    if not isinstance(logger, logging.Logger):
        raise KafkaError(f"there is no logger {name}", ErrorCode.INVALID_CONFIG)
    return logger


def _named(level: int) -> str:
    """The name of Kafka's level that lets the same records through."""
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")
