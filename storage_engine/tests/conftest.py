"""What all unit tests of the engine share."""

from collections.abc import Iterator

import pytest

from storage_engine.net import client_log


@pytest.fixture(autouse=True)
def _lines_of_the_log_are_counted_by_test() -> Iterator[None]:
    client_log.forget_all()
    yield
