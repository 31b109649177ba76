"""The errors of the connector. Each is one line and begins with a stable code.

Spark keeps the text of a Python exception and drops its type, so the code is a part of the text.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from storage_engine.core.errors import (
    AuthenticationError,
    DeadlineExceededError,
    HeadraceError,
    KafkaError,
)

P = ParamSpec("P")
T = TypeVar("T")


class ConnectorError(HeadraceError):
    """Something that the user of the Spark format can correct. The text begins with `[code]`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"[{self.code}] {self.message}"


class OptionError(ConnectorError):
    """An option is unknown, misspelled, impossible, or does not go together with another."""


class DataLossError(ConnectorError):
    """Records that the query has not read are gone, and `failOnDataLoss` is true."""


class RowError(ConnectorError):
    """A row can't be written: no topic, a partition that does not exist, a record too large."""


@contextmanager
def in_one_line() -> Iterator[None]:
    """Turns an error of the client into a ConnectorError, whose code the user can search for."""
    try:
        yield
    except ConnectorError:
        raise
    except DeadlineExceededError as error:
        raise ConnectorError("TIMED_OUT", _one_line(error)) from None
    except AuthenticationError as error:
        raise ConnectorError("AUTHENTICATION_FAILED", _one_line(error)) from None
    except KafkaError as error:
        raise ConnectorError(error.code.name, _one_line(error)) from None
    except HeadraceError as error:
        raise ConnectorError("FAILED", _one_line(error)) from None


def without_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """Removes the traceback from a ConnectorError. Spark prints tracebacks in full, and of this
    error only the last line helps."""

    @functools.wraps(function)
    def brief(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except ConnectorError as error:
            raise error.with_traceback(None) from None

    return brief


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
