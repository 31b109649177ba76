"""Long work of requests in turns of the event loop: its cost is counted in steps, not in time."""

from collections import Counter
from functools import partial

import pytest

from simulation.world.clock import STEP_NS, ProcessLoop, SimulatedLoop
from storage_engine.broker.requests.long_work import (
    INLINE_NS,
    RUNNING_EACH_MAX,
    RUNNING_MAX,
    SLICE_NS,
    URGENT_MAX,
    LongWork,
)
from storage_engine.core.fair_queue import FIRST, Share


class Client:
    """Somebody with a request."""

    def __init__(self, share: Share = ("User:a", "host", 1)) -> None:
        self.holds = 0
        self.is_gone = False
        self.is_long = False
        self.quota = None
        self.share = share
        self.failures: list[Exception] = []

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1

    def failed(self, error: Exception) -> None:
        self.failures.append(error)


class Worked:
    """LongWork over simulated time, and what was done in which turn."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        process = ProcessLoop(self.loop)
        self.work = LongWork(process, process, process.work_ns)
        self.turns: list[tuple[int, str]] = []

    def steps(self, name: str, count: int):
        for _ in range(count):
            self.turns.append((self.loop.events, name))
            yield None

    def steps_a_turn(self) -> Counter[int]:
        return Counter(turn for turn, _ in self.turns)


@pytest.fixture
def worked():
    return Worked()


def test_short_work_is_done_within_the_call(worked):
    client = Client()
    worked.work.run(client, worked.steps("short", 5))
    assert len(worked.turns) == 5
    assert (client.holds, client.is_long) == (0, False)


def test_no_turn_of_the_loop_does_more_than_its_share_of_long_work(worked):
    client = Client()
    worked.work.run(client, worked.steps("long", 5000))
    assert (client.holds, client.is_long) == (1, True), "the next request of the client waits"
    worked.loop.run_for(100)
    by_turn = worked.steps_a_turn()
    assert sum(by_turn.values()) == 5000
    # The call and the first slice are not told apart here.
    assert by_turn.pop(0) <= (INLINE_NS + SLICE_NS) // STEP_NS
    assert max(by_turn.values()) <= SLICE_NS // STEP_NS
    assert client.holds == 0


def test_what_the_cluster_waits_for_goes_before_any_number_of_clients(worked):
    def begin(name: str):
        def decoded():
            yield lambda: worked.turns.append((worked.loop.events, name))

        return decoded

    for number in range(50):
        worked.work.run_later(Client(), begin(f"client {number}"))
    order = Client((FIRST, "host", 2))
    worked.work.run_later(order, begin("order"))
    worked.loop.run_for(1000)
    names = [name for _, name in worked.turns]
    assert len(names) == 51
    # Behind what a thread was at already.
    assert names.index("order") <= RUNNING_MAX
    assert order.holds == 0


def test_requests_of_brokers_are_bounded_too(worked):
    """The others wait as the bytes that they came as, and have their turn in the end."""
    begun: list[int] = []

    def begin(number: int):
        begun.append(number)
        return worked.steps("decoded", 1)

    for number in range(2 * URGENT_MAX):
        worked.work.run_later(Client((FIRST, "host", number)), partial(begin, number))
    assert len(begun) == URGENT_MAX + RUNNING_EACH_MAX
    worked.loop.run_for(1000)
    assert len(begun) == 2 * URGENT_MAX


def test_a_request_of_another_principal_waits_for_one_long_one_at_most(worked):
    """Whatever the number of connections that the first one has."""
    decoded: list[str] = []

    def begin(name: str, principal: str, number: int) -> None:
        def steps():
            yield partial(decoded.append, name)

        client = Client((principal, "host", number))
        worked.work.run_later(client, steps, size=1 << 20)

    for number in range(50):
        begin(f"crowd {number}", "User:crowd", number)
    begin("other", "User:other", 50)
    worked.loop.run_for(1000)
    assert len(decoded) == 51
    # Those that were admitted before it share the thread with it.
    assert decoded.index("other") <= 1


def test_clients_that_nobody_tells_apart_take_turns_by_connection(worked):
    decoded: list[str] = []

    def begin(name: str, number: int):
        def steps():
            yield partial(decoded.append, name)

        worked.work.run_later(Client(("User:ANONYMOUS", "host", number)), steps, size=1 << 20)

    for number in range(RUNNING_MAX):
        begin("crowd", number)
    worked.loop.run_for(1000)
    for _ in range(3):
        for number in range(RUNNING_MAX):
            begin("crowd", number)
    begin("other", 99)
    worked.loop.run_for(1000)
    # Behind what was admitted when it came, however much the others have in front of it.
    assert decoded.index("other") <= 2 * RUNNING_MAX


def test_short_requests_with_long_work_keep_nobody_from_being_decoded(worked):
    """However many there are: an order of the controller, or a client's long request."""
    for number in range(2 * URGENT_MAX):
        worked.work.run(Client(("User:crowd", "host", number)), worked.steps("crowd", 500))
    by_then = len(worked.turns)
    worked.work.run_later(Client((FIRST, "host", 1)), partial(worked.steps, "order", 1))
    worked.work.run_later(Client(("User:other", "host", 2)), partial(worked.steps, "other", 1))
    worked.loop.run_for(1000)
    names = [name for _, name in worked.turns[by_then:]]
    assert Counter(names)["crowd"] > 100 * SLICE_NS // STEP_NS
    assert names.index("order") == 0
    assert names.index("other") <= 1 + SLICE_NS // STEP_NS


def test_two_that_are_long_take_turns(worked):
    for name in ("one", "other"):
        worked.work.run(Client(), worked.steps(name, 2000))
    worked.loop.run_for(100)
    names = [name for _, name in worked.turns]
    assert names.index("other") < 200
    assert "one" in names[-400:]


def test_work_of_a_client_that_is_gone_ends(worked):
    client = Client()
    worked.work.run(client, worked.steps("long", 5000))
    client.is_gone = True
    worked.loop.run_for(100)
    assert len(worked.turns) <= INLINE_NS // STEP_NS + 1
    assert client.holds == 0


def test_a_step_that_raises_is_told_and_ends_that_work_only(worked):
    def broken():
        yield from worked.steps("broken", 500)
        raise ValueError("a fault of ours")

    client, other = Client(), Client()
    worked.work.run(client, broken())
    worked.work.run(other, worked.steps("other", 2000))
    worked.loop.run_for(100)
    assert [str(each) for each in client.failures] == ["a fault of ours"]
    assert (client.holds, other.holds, other.failures) == (0, 0, [])
    assert Counter(name for _, name in worked.turns)["other"] == 2000


def test_what_is_done_beside_the_loop_comes_back_as_value_or_error(worked):
    found: list[object] = []

    def broken() -> None:
        raise OSError("no such thing")

    def steps():
        found.append((yield lambda: 42))
        with pytest.raises(OSError, match="no such thing"):
            yield broken
        found.append("went on")

    client = Client()
    worked.work.run(client, steps())
    assert (found, client.holds) == ([], 1)
    worked.loop.run_for(100)
    assert (found, client.holds) == ([42, "went on"], 0)


def test_requests_that_are_not_decoded_wait_until_few_are_worked_on(worked):
    begun: list[int] = []

    def begin(number: int):
        begun.append(number)
        return worked.steps(str(number), 1000)

    shares = [(f"User:{number % 2}", "host", number) for number in range(3 * RUNNING_MAX)]
    clients = [Client(share) for share in shares]
    for number, client in enumerate(clients):
        worked.work.run_later(client, partial(begin, number))
    assert begun == list(range(RUNNING_MAX))
    worked.loop.run_for(1000)
    assert sorted(begun) == list(range(len(clients)))
    assert not any(client.holds for client in clients)
