"""Fetch sessions (KIP-227): what a client may leave out, what the broker may, and which sessions
make room."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.world.clock import SimulatedLoop
from storage_engine.broker.requests.fetch_sessions import (
    EVICTION_MS,
    WANTED_PER_PARTITION,
    FetchSessions,
    SessionFetch,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.fair_queue import Share
from storage_engine.core.typed.comparisons import Comparison, Operator
from storage_engine.protocol.apis.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.fetch_session import ClientFetchSession, SessionPart, epoch_after
from storage_engine.protocol.typed.projection import WANT_FRAMES, TypedWant
from storage_engine.tests.sampling import examples

OWNER, STRANGER = ("User:owner", "10.0.0.1"), ("User:stranger", "10.0.0.1")


def wanted(*partitions: int, offset: int = 0) -> list[FetchPartition]:
    return [FetchPartition("t", partition, offset, 100) for partition in partitions]


def request(partitions, session_id=0, epoch=0, replica_id=-1, forgotten=()) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=100, partitions=partitions, replica_id=replica_id,
        session_id=session_id, session_epoch=epoch, forgotten=forgotten,
    )  # fmt: skip


def answer(partition: int, watermark: int = 0, **fields) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        "t", partition, high_watermark=watermark, last_stable_offset=watermark, log_start_offset=0
    )._replace(**fields)


class Broker:
    """Sessions, and answers that tests set."""

    def __init__(self, slots: int = 10, partitions_max: int = 1000) -> None:
        self.clock = SimulatedLoop()
        self.sessions = FetchSessions(slots, self.clock, partitions_max=partitions_max)
        self.state: dict[int, FetchPartitionResponse] = {}

    def fetch(self, asked: FetchRequest, owner: Share = OWNER) -> FetchResponse:
        begun = self.sessions.begin(asked, owner)
        return begun if isinstance(begun, FetchResponse) else self.finish(begun)

    def finish(self, begun: SessionFetch) -> FetchResponse:
        return begun.response(
            [
                self.state.get(each.partition, answer(each.partition))
                for each in begun.request.partitions
            ]
        )

    def open(self, *partitions: int, replica_id: int = -1, owner: Share = OWNER) -> int:
        return self.fetch(request(wanted(*partitions), replica_id=replica_id), owner).session_id


@pytest.fixture
def broker() -> Broker:
    return Broker()


def indexes(response: FetchResponse) -> list[int]:
    assert response.error_code == 0
    return [each.partition for each in response.partitions]


def test_without_a_session_everything_is_answered_and_nothing_remembered(broker):
    response = broker.fetch(request(wanted(1, 2), epoch=-1))
    assert indexes(response) == [1, 2]
    assert response.session_id == 0
    assert len(broker.sessions) == 0


def test_the_first_answer_is_whole_and_later_ones_tell_what_changed(broker):
    first = broker.fetch(request(wanted(0, 1, 2)))
    assert indexes(first) == [0, 1, 2]
    assert indexes(broker.fetch(request([], first.session_id, 1))) == []
    broker.state[1] = answer(1, watermark=7)
    assert indexes(broker.fetch(request([], first.session_id, 2))) == [1]
    assert indexes(broker.fetch(request([], first.session_id, 3))) == []


@pytest.mark.parametrize(
    "change",
    [
        {"records": b"batch"},
        {"high_watermark": 1},
        {"last_stable_offset": 1},
        {"log_start_offset": 1},
        {"error_code": int(ErrorCode.NOT_LEADER_OR_FOLLOWER)},
        {"diverging_epoch": (1, 2)},
        {"preferred_read_replica": 2},
    ],
)
def test_each_kind_of_news_is_told(broker, change):
    session_id = broker.open(0, 1)
    broker.state[1] = answer(1, **change)
    assert indexes(broker.fetch(request([], session_id, 1))) == [1]


def test_an_error_is_told_as_long_as_it_lasts_and_its_end_once(broker):
    session_id = broker.open(0)
    broker.state[0] = answer(0, error_code=int(ErrorCode.UNKNOWN_LEADER_EPOCH))
    assert indexes(broker.fetch(request([], session_id, 1))) == [0]
    assert indexes(broker.fetch(request([], session_id, 2))) == [0]
    del broker.state[0]
    assert indexes(broker.fetch(request([], session_id, 3))) == [0]
    assert indexes(broker.fetch(request([], session_id, 4))) == []


def test_a_partition_that_is_named_is_answered_whatever_was_told(broker):
    session_id = broker.open(0, 1)
    assert indexes(broker.fetch(request(wanted(1), session_id, 1))) == [1]


def test_partitions_are_added_changed_and_forgotten(broker):
    session_id = broker.open(0, 1)
    begun = broker.sessions.begin(
        request(wanted(1, offset=5) + wanted(2), session_id, 1, forgotten=[("t", [0, 9])]), OWNER
    )
    assert isinstance(begun, SessionFetch)
    assert begun.request.partitions == wanted(1, offset=5) + wanted(2)
    assert broker.sessions.remembered == 2


def test_a_partition_with_records_is_served_last_next_time(broker):
    session_id = broker.open(0, 1, 2)
    broker.state[0] = answer(0, records=b"batch")
    broker.fetch(request([], session_id, 1))
    begun = broker.sessions.begin(request([], session_id, 2), OWNER)
    assert isinstance(begun, SessionFetch)
    assert [each.partition for each in begun.request.partitions] == [1, 2, 0]


def test_a_session_whose_last_partition_is_forgotten_ends(broker):
    session_id = broker.open(0)
    response = broker.fetch(request([], session_id, 1, forgotten=[("t", [0])]))
    assert (response.session_id, indexes(response)) == (0, [])
    assert (len(broker.sessions), broker.sessions.remembered) == (0, 0)


def test_an_unknown_session_and_a_wrong_epoch_are_refused_and_change_nothing(broker):
    session_id = broker.open(0)
    unknown = broker.fetch(request([], session_id + 1, 1))
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for epoch in (2, 5):
        wrong = broker.fetch(request(wanted(3), session_id, epoch))
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert indexes(broker.fetch(request([], session_id, 1))) == []


def test_a_request_that_waits_while_a_later_one_is_taken_is_refused(broker):
    session_id = broker.open(0)
    waiting = broker.sessions.begin(request([], session_id, 1), OWNER)
    assert isinstance(waiting, SessionFetch)
    broker.fetch(request([], session_id, 2))
    assert broker.finish(waiting).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_a_request_that_waits_while_a_later_one_ends_the_session_is_refused(broker):
    session_id = broker.open(0, 1)
    waiting = broker.sessions.begin(request([], session_id, 1), OWNER)
    assert isinstance(waiting, SessionFetch)
    broker.fetch(request([], session_id, 2, forgotten=[("t", [0, 1])]))
    assert broker.finish(waiting).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_ends_the_session_that_it_names(broker, epoch):
    session_id = broker.open(0)
    response = broker.fetch(request(wanted(0), session_id, epoch))
    assert response.session_id != session_id
    assert len(broker.sessions) == (1 if epoch == 0 else 0)


def test_without_a_free_slot_a_request_is_answered_without_a_session():
    broker = Broker(slots=1)
    first = broker.open(0)
    broker.clock.run_for(EVICTION_MS)
    response = broker.fetch(request(wanted(1)))
    assert (response.session_id, indexes(response)) == (0, [1])
    assert indexes(broker.fetch(request([], first, 1))) == []


def test_no_slots_are_no_sessions():
    assert Broker(slots=0).open(0) == 0


def test_the_session_that_is_unused_for_longest_makes_room():
    broker = Broker(slots=2)
    old, used = broker.open(0), broker.open(0, 1)
    broker.clock.run_for(EVICTION_MS)
    broker.fetch(request([], used, 1))
    broker.clock.run_for(1)
    assert broker.open(5) > 0
    assert broker.fetch(request([], old, 1)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert indexes(broker.fetch(request([], used, 2))) == []


def kept_in_use(broker: Broker, session_id: int) -> None:
    """Until it is old enough to make room for a larger one."""
    for epoch in (1, 2):
        broker.clock.run_for(EVICTION_MS - 1)
        assert broker.fetch(request([], session_id, epoch)).error_code == 0


def test_an_old_session_in_use_makes_room_for_a_larger_one_only():
    broker = Broker(slots=1)
    kept_in_use(broker, broker.open(0, 1))
    assert broker.open(0) == 0
    assert broker.open(2, 3) == 0
    assert broker.open(0, 1, 2) > 0


def test_a_followers_session_makes_room_for_no_clients_but_takes_theirs():
    broker = Broker(slots=1)
    broker.open(0, 1, 2)
    follower = broker.open(0, replica_id=2)
    assert follower > 0
    kept_in_use(broker, follower)
    assert broker.open(0, 1, 2, 3) == 0
    assert broker.open(0, 1, replica_id=3) > 0


def test_memory_is_bounded_besides_the_slots():
    broker = Broker(partitions_max=5)
    first = broker.open(0, 1, 2)
    assert broker.open(0, 1, 2) == 0
    assert broker.open(*range(6)) == 0
    grown = broker.fetch(request(wanted(*range(10)), first, 1))
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(broker.sessions), broker.sessions.remembered) == (0, 0)


def test_what_clients_want_of_typed_topics_counts_as_memory():
    broker = Broker(partitions_max=20)
    few = TypedWant(WANT_FRAMES, (1, 2))
    many = TypedWant(WANT_FRAMES, tuple(range(1, 1 + 10 * WANTED_PER_PARTITION)))
    text = Comparison(1, Operator.EQ, ("x" * 16 * 10 * WANTED_PER_PARTITION,))

    def want(*wants: TypedWant | None) -> list[FetchPartition]:
        return [each._replace(want=w) for each, w in zip(wanted(0, 1), wants, strict=False)]

    session = broker.fetch(request(want(few, None))).session_id
    assert broker.sessions.remembered == 2
    assert not broker.fetch(request(want(many, many))).session_id
    assert broker.sessions.remembered == 2
    assert broker.fetch(request(want(many), session, 1)).session_id == session
    assert broker.sessions.remembered == 12
    assert broker.fetch(request(want(few), session, 2)).session_id == session
    assert broker.sessions.remembered == 2
    filtered = TypedWant(WANT_FRAMES, (), (text, text))
    grown = broker.fetch(request(want(filtered), session, 3))
    assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(broker.sessions), broker.sessions.remembered) == (0, 0)


def test_epochs_go_on_from_one_after_the_last():
    assert epoch_after(1) == 2
    assert epoch_after(2**31 - 1) == 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 4)),
        st.tuples(st.just("fail"), st.integers(0, 4)),
        st.tuples(st.just("heal"), st.integers(0, 4)),
        st.tuples(st.just("want"), st.sets(st.integers(0, 4), min_size=1)),
        st.tuples(st.just("drop"), st.integers(0, 4)),
        st.tuples(st.sampled_from(["lose request", "lose answer", "restart"]), st.just(0)),
        st.tuples(st.just("fetch"), st.just(0)),
    ),
    max_size=40,
)


class Pair:
    """A client with a session, and a broker, over a network that loses what the test says."""

    def __init__(self) -> None:
        self.broker = Broker()
        self.client = ClientFetchSession()
        self.tells_changes = False
        """Whether the client says itself what has changed, where it may."""
        self.asked: dict[int, FetchPartition] = {}
        self.named_again: set[int] = set()
        self.ends = dict.fromkeys(range(5), 0)
        self.failing: set[int] = set()
        self.wants = {0}
        self.known: dict[int, int] = {}
        """The client's position by partition, as it took it from answers."""

    def do(self, kind: str, partition: int) -> None:
        match kind:
            case "append":
                self.ends[partition] += 1
            case "fail":
                self.failing.add(partition)
            case "heal":
                self.failing.discard(partition)
            case "drop":
                # The client throws away what it was told.
                self.known.pop(partition, None)
                self.client.name_again("t", partition)
            case "restart":
                self.broker = Broker()
            case _:
                self.fetch(kind)

    def want(self, partitions: set[int]) -> None:
        for new in partitions - self.wants:
            # What it knew of one that comes back, it has given up.
            self.known.pop(new, None)
            self.client.name_again("t", new)
            self.named_again.add(new)
        self.wants = set(partitions)

    def fetch(self, fate: str = "") -> bool:
        """Whether it arrived both ways, and was no refusal."""
        positions = [wanted(at, offset=self.known.get(at, 0))[0] for at in sorted(self.wants)]
        part = self._part(positions)
        asked = request(
            part.partitions, part.session_id, part.session_epoch, forgotten=part.forgotten
        )
        if fate == "lose request":
            self.client.lost()
            return False
        begun = self.broker.sessions.begin(asked, OWNER)
        response = begun if isinstance(begun, FetchResponse) else self._read(begun)
        if fate == "lose answer":
            self.client.lost()
            return False
        self.client.took(response)
        for each in response.partitions:
            assert each.partition in self.wants
            if not each.error_code:
                self.known[each.partition] = each.high_watermark
        return response.error_code == 0

    def _part(self, positions: list[FetchPartition]) -> SessionPart:
        asked, self.asked = self.asked, {each.partition: each for each in positions}
        if self.client.is_new or not self.tells_changes:
            return self.client.next(positions)
        unwanted = [("t", at) for at in asked if at not in self.asked]
        changed = [each for each in positions if each != asked.get(each.partition)]
        again = [each for each in positions if each.partition in self.named_again]
        self.named_again.clear()
        return self.client.next_changed([*changed, *again], unwanted)

    def _read(self, begun: SessionFetch) -> FetchResponse:
        answers = []
        for each in begun.request.partitions:
            at = each.partition
            if at in self.failing:
                code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                answers.append(FetchPartitionResponse("t", at, code))
            else:
                behind = each.fetch_offset < self.ends[at]
                answers.append(answer(at, self.ends[at], records=b"batch" if behind else None))
        return begun.response(answers)


@pytest.mark.parametrize("stranger", [STRANGER, ("User:owner", "10.0.0.2")])
def test_the_session_of_another_is_not_there(broker, stranger):
    session_id = broker.open(0, 1)
    for epoch in (1, 2, 7):
        refused = broker.fetch(request([], session_id, epoch), stranger)
        unknown = broker.fetch(request([], session_id ^ 1, epoch), stranger)
        assert refused == unknown
        assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    for epoch in (-1, 0):
        broker.fetch(request(wanted(5), session_id, epoch), stranger)
    assert broker.fetch(request([], session_id, 1)).error_code == 0, "it goes on"


def test_the_ids_of_sessions_do_not_follow_from_anything():
    """Two brokers that have done the same draw other ids."""
    drawn = []
    for _ in range(2):
        broker = Broker(slots=20)
        drawn.append([broker.open(0) for _ in range(20)])
    assert not set(drawn[0]) & set(drawn[1])
    assert all(0 < each < 1 << 31 for each in drawn[0] + drawn[1])


def test_one_owner_leaves_slots_for_others():
    broker = Broker(slots=10)
    crowd = [broker.open(*range(5)) for _ in range(20)]
    assert sum(map(bool, crowd)) == 10
    own = [broker.open(0, owner=STRANGER) for _ in range(10)]
    assert sum(map(bool, own)) == 5
    # Nor do the others take more than that from the first.
    assert [owner.owner for owner in broker.sessions].count(OWNER) == 5


def test_a_followers_session_makes_room_for_nobody():
    broker = Broker(slots=2)
    assert broker.open(0, replica_id=2) and broker.open(0, replica_id=3)
    assert not broker.open(*range(9), owner=STRANGER)


@given(steps=STEPS, tells_changes=st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_a_client_with_a_session_learns_all_that_one_without_would(steps, tells_changes):
    """Whatever is appended, fails, is wanted, lost or forgotten: after two fetches that arrive, the
    client knows the end of each partition that it wants and that has no error."""
    pair = Pair()
    pair.tells_changes = tells_changes
    for kind, argument in steps:
        if kind == "want":
            pair.want(argument)
        else:
            pair.do(kind, argument)
    while not pair.fetch():
        pass
    pair.fetch()
    for at in pair.wants - pair.failing:
        assert pair.known.get(at) == pair.ends[at]
