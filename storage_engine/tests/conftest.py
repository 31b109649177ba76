"""See `shared_empties`."""

from collections.abc import Iterator

import pytest

from storage_engine.net import client_log
from storage_engine.tests.shared_empties import forbid_changes

forbid_changes()


@pytest.fixture(autouse=True)
def _lines_of_the_log_are_counted_by_test() -> Iterator[None]:
    client_log.forget_all()
    yield
