"""A `with` block closes its client; the error that has left the block is the one that is told."""

import pytest

from storage_engine.client.closing import Closing
from storage_engine.core.errors import HeadraceError


class Client(Closing):
    def __init__(self, error=None):
        self.closed = 0
        self._error = error

    def close(self):
        self.closed += 1
        if self._error is not None:
            raise self._error


def test_the_end_of_a_block_closes_and_tells_what_went_wrong_then():
    with Client() as client:
        pass
    assert client.closed == 1
    with pytest.raises(HeadraceError, match="of the close"), Client(HeadraceError("of the close")):
        pass


def test_the_error_of_a_block_is_not_hidden_by_that_of_the_close():
    client = Client(HeadraceError("of the close"))
    with pytest.raises(ZeroDivisionError), client:
        raise ZeroDivisionError
    assert client.closed == 1
