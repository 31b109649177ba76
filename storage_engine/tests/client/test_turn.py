"""One call at a time is in a client; its end is always possible, and that of a `with` block."""

import threading

import pytest

from storage_engine.client.closing import Closing
from storage_engine.client.turn import ClientInUseError, Turn, in_turn, steps_in_turn
from storage_engine.core.errors import HeadraceError
from storage_engine.tests.forked import forked

LONG_S = 60


class Client:
    """Its end is noted, with whether an error has led to it."""

    def __init__(self, *, waits=True):
        self.ends: list[bool] = []
        self._turn = Turn("client", self.ends.append, waits=waits)
        self.end = self._turn.end

    @in_turn
    def call(self, work=lambda: None):
        return work()


@pytest.fixture
def client():
    return Client()


def in_thread(work):
    """What the work in another thread returns, or raises."""
    told: list[object] = []

    def run():
        try:
            told.append(work())
        except HeadraceError as error:
            told.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LONG_S)
    return told[0]


def test_a_call_of_another_thread_waits_or_is_refused(client):
    held, go_on = threading.Event(), threading.Event()

    def hold():
        held.set()
        assert go_on.wait(LONG_S)

    for each, waits in ((client, True), (Client(waits=False), False)):
        held.clear()
        go_on.clear()
        holding = threading.Thread(target=each.call, args=(hold,))
        holding.start()
        assert held.wait(LONG_S)
        if waits:
            threading.Timer(0.05, go_on.set).start()
            assert in_thread(lambda: client.call(lambda: "done")) == "done"
        else:
            refusal = in_thread(each.call)
            assert isinstance(refusal, ClientInUseError)
            assert "in use by another thread: it is for one thread" in str(refusal)
        go_on.set()
        holding.join(LONG_S)


def test_a_handler_within_a_call_may_only_close_and_the_call_carries_it_out(client):
    def handler():
        with pytest.raises(ClientInUseError, match=r"a signal handler .* can only close it"):
            client.call()
        client.end()
        assert client.ends == [], "the call is still at work"
        with pytest.raises(HeadraceError, match="the client is closed"):
            client._turn.check()

    client.call(handler)
    assert client.ends == [False]
    client.end()
    assert client.ends == [False], "a second end does nothing"
    with pytest.raises(HeadraceError, match="the client is closed"):
        client.call()


def test_user_code_within_a_call_may_call_where_it_is_lent_the_client(client):
    def callback():
        with client._turn.lent():
            assert client.call(lambda: 7) == 7
        with pytest.raises(ClientInUseError):
            client.call()

    client.call(callback)


def test_an_error_of_the_call_that_carries_out_the_end_is_told_to_it(client):
    def fails():
        client.end()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.call(fails)
    assert client.ends == [True]


def test_between_the_steps_of_a_generator_other_calls_may_come(client):
    steps = steps_in_turn(client._turn, iter("ab"))
    assert next(steps) == "a"
    assert in_thread(lambda: client.call(lambda: "other")) == "other"
    assert list(steps) == ["b"]


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_of_a_fork_neither_uses_nor_ends_the_client(client):
    def uses():
        client.end()
        with pytest.raises(HeadraceError, match="made before a fork; make one in each process"):
            client.call()
        return client.ends == []

    assert forked(uses)
    assert client.call(lambda: 1) == 1


class Closed(Closing):
    def __init__(self, error=None):
        self.closed = 0
        self._error = error

    def close(self):
        self.closed += 1
        if self._error is not None:
            raise self._error


def test_the_end_of_a_block_closes_and_tells_what_went_wrong_then():
    with Closed() as client:
        pass
    assert client.closed == 1
    with pytest.raises(HeadraceError, match="of the close"), Closed(HeadraceError("of the close")):
        pass


def test_the_error_of_a_block_is_not_hidden_by_that_of_the_close():
    client = Closed(HeadraceError("of the close"))
    with pytest.raises(ZeroDivisionError), client:
        raise ZeroDivisionError
    assert client.closed == 1
