"""Exceptions that nobody foresaw, raised in the middle of a broker."""

import logging
from collections.abc import Callable
from typing import Any

import pytest


class Broken(Exception):
    """Of a kind that nothing catches by its name."""


def fail(*_args: Any) -> Any:
    raise Broken("on purpose")


class Raised:
    """How many were raised by `times`, and how many the log tells of."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.count = 0
        self._caplog = caplog

    def times(self, work: Callable[..., Any], most: int, when: Any = None) -> Callable[..., Any]:
        """`work`, which raises so many times instead, where `when` holds for its arguments."""
        left = most

        def instead(*args: Any, **options: Any) -> Any:
            nonlocal left
            if left and (when is None or when(*args, **options)):
                left -= 1
                self.count += 1
                fail()
            return work(*args, **options)

        return instead

    @property
    def told(self) -> int:
        """The number of reports with a trace."""
        return sum(
            record.levelno >= logging.ERROR
            and record.exc_info is not None
            and record.exc_info[0] is Broken
            for record in self._caplog.records
        )
