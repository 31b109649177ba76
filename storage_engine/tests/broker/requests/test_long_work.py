"""Work of requests that is done in turns of the event loop (broker/long_work.py), and the requests
that once held up a broker: their cost is counted here in steps and reads, not in time."""

import itertools
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from simulation.world.clock import STEP_NS, ProcessLoop, SimulatedLoop
from simulation.world.cluster import SimulatedCluster
from simulation.world.network import CLIENT, SimulatedConnection
from simulation.world.requests import fetch_request, make_batch, produce_request
from storage_engine.broker.handlers.administration.topics import duplicates
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.handlers.records import fetch as fetch_handler
from storage_engine.broker.requests.delayed_fetch import FEW_PARTITIONS, WaitingPartitions
from storage_engine.broker.requests.follower_sessions import FollowerSession
from storage_engine.broker.requests.long_work import (
    INLINE_NS,
    RUNNING_EACH_MAX,
    RUNNING_MAX,
    SLICE_NS,
    URGENT_MAX,
    LongWork,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.core.fair_queue import FIRST, Share
from storage_engine.core.ids import TopicPartition
from storage_engine.log.segments import time_search
from storage_engine.protocol.apis import list_offsets, metadata
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest
from storage_engine.protocol.apis.metadata import MetadataRequest
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.records.record_encoder import iter_encoded

TP = TopicPartition("t", 0)


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


def test_work_after_a_wait_is_not_begun_for_a_client_that_is_gone(worked):
    connection: Any = None
    exchange: Any = SimpleNamespace(closed=True)
    call = ApiCall(metadata.API, 1, 0, connection, exchange, work=worked.work)
    call.run(worked.steps("late", 3))
    assert worked.turns == []
    exchange.closed = False
    call.run(worked.steps("late", 3))
    assert len(worked.turns) == 3


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


# --- the requests that once held up a broker ---


@pytest.fixture
def cluster(tmp_path):
    cluster = SimulatedCluster(tmp_path, 1, default_replication_factor="1")
    assert cluster.create_topic("t").error_code == 0
    assert cluster.produced(TP, b"record") == 0
    yield cluster
    cluster.close()


def reads_of(cluster, monkeypatch) -> list[TopicPartition]:
    """Every read of a partition from now on."""
    reader = cluster[1].parts.requests.reader
    reads = []
    read_partition = type(reader)._read_partition

    def counted(self, request, wanted, *rest):
        reads.append(TopicPartition(wanted.topic, wanted.partition))
        return read_partition(self, request, wanted, *rest)

    monkeypatch.setattr(type(reader), "_read_partition", counted)
    return reads


def waiting_for_much(names: list[tuple[str, int]]):
    request = fetch_request("t", 0, 1, wait_ms=60_000)
    part = request.partitions[0]
    partitions = [
        part._replace(topic=topic, partition=partition, fetch_offset=int(topic == "t"))
        for topic, partition in names
    ]
    return request._replace(partitions=partitions, min_bytes=2**31 - 1, max_bytes=2**31 - 1)


def test_a_fetch_that_names_a_partition_many_times_reads_it_once_for_each_append(
    cluster, monkeypatch
):
    reads = reads_of(cluster, monkeypatch)
    cluster.ask(1, FETCH, 11, waiting_for_much([("t", 0)] * 400))
    cluster.loop.run_for(20)
    assert len(reads) == 1
    cluster.produced(TP, b"another")
    cluster.loop.run_for(20)
    assert len(reads) <= 3, "once for each of the append and the high watermark"


def test_an_append_costs_a_fetch_of_many_partitions_one_read(cluster, monkeypatch):
    assert cluster.create_topic("many", 100).error_code == 0
    cluster.loop.run_for(1000)
    names = [("t", 0), *(("many", number) for number in range(100))]
    reads = reads_of(cluster, monkeypatch)
    answers = cluster.ask(1, FETCH, 11, waiting_for_much(names))
    cluster.loop.run_for(50)
    assert len(reads) == len(names)
    cluster.produced(TP, b"another")
    cluster.loop.run_for(50)
    assert not answers
    assert len(reads) <= len(names) + 2


def test_a_fetch_of_many_partitions_is_answered_when_they_have_enough_together(cluster):
    assert cluster.create_topic("many", 100).error_code == 0
    cluster.loop.run_for(1000)
    request = waiting_for_much([("many", number) for number in range(100)])
    partitions = [each._replace(fetch_offset=0) for each in request.partitions]
    answers = cluster.ask(1, FETCH, 11, request._replace(partitions=partitions, min_bytes=200))
    cluster.loop.run_for(50)
    for number in range(4):
        assert not answers
        assert cluster.produced(TopicPartition("many", number), b"x" * 5) == 0
        cluster.loop.run_for(10)
    (answer,) = answers
    assert [each.partition for each in answer.partitions if each.records] == [0, 1, 2, 3]


def test_when_many_partitions_are_waited_for_a_fetch_of_many_more_does_not_wait():
    waiting = WaitingPartitions(most=1000)
    assert waiting.has_room_for(1000)
    waiting.add(990)
    assert not waiting.has_room_for(FEW_PARTITIONS + 1)
    assert waiting.has_room_for(FEW_PARTITIONS)
    waiting.add(-990)
    assert waiting.has_room_for(1000)


class Name(str):
    """A name that counts its comparisons."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Name.compared += 1
        return str.__eq__(self, other)


def test_duplicates_among_many_names_are_found_without_comparing_each_with_each():
    names = [Name(f"t{number}") for number in range(2000)]
    assert duplicates([*names, Name("t7")]) == {"t7"}
    assert Name.compared < 3 * len(names)


def test_list_offsets_refuses_a_partition_that_is_named_twice(cluster):
    wanted = [ListOffsetsPartition("t", 0, -1)] * 3 + [ListOffsetsPartition("t", 1, -1)]
    answer = cluster.answer(cluster.ask(1, list_offsets.API, 5, ListOffsetsRequest(wanted)))
    codes = [each.error_code for each in answer.partitions]
    assert codes[:3] == [ErrorCode.INVALID_REQUEST] * 3
    assert codes[3] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def compressed_batch(count: int) -> memoryview:
    values = pa.array([bytes(1000)] * count, pa.binary())
    times = pa.array(list(range(1_000, 1_000 + count)), pa.int64())
    (encoded,) = iter_encoded(values, None, None, times, compression="zstd", batch_bytes=1 << 30)
    return memoryview(bytearray(encoded.data))


def test_a_search_by_time_decompresses_beside_the_loop(cluster, monkeypatch):
    produced = produce_request("t", 0, compressed_batch(100), acks=-1)
    assert cluster.answer(cluster.ask(1, PRODUCE, 8, produced)).partitions[0].error_code == 0
    beside: list[bool] = []
    is_beside = False
    submit = cluster.loop.submit

    def submitted(work, *rest):
        def marked():
            nonlocal is_beside
            is_beside = True
            try:
                return work()
            finally:
                is_beside = False

        submit(marked, *rest)

    look = time_search._times_within_batch

    def looked(*arguments):
        beside.append(is_beside)
        return look(*arguments)

    monkeypatch.setattr(cluster.loop, "submit", submitted)
    monkeypatch.setattr(time_search, "_times_within_batch", looked)
    request = ListOffsetsRequest([ListOffsetsPartition("t", 0, 1_050)])
    answer = cluster.answer(cluster.ask(1, list_offsets.API, 5, request))
    assert (answer.partitions[0].offset, answer.partitions[0].timestamp) == (51, 1_050)
    assert beside == [True]


def test_a_search_whose_partition_is_led_by_another_when_it_ends_says_so(cluster):
    produced = produce_request("t", 0, compressed_batch(100), acks=-1)
    assert cluster.answer(cluster.ask(1, PRODUCE, 8, produced)).partitions[0].error_code == 0
    request = ListOffsetsRequest([ListOffsetsPartition("t", 0, 1_050)])
    cluster[1].loop.held = []
    answers = cluster.ask(1, list_offsets.API, 5, request)
    cluster.loop.run_for(10)
    assert not answers
    partition = cluster[1].replicas.get(TP)
    assert partition is not None
    partition.leader_epoch += 1
    cluster[1].loop.release()
    code = cluster.answer(answers).partitions[0].error_code
    assert code == ErrorCode.FENCED_LEADER_EPOCH


def test_requests_behind_a_long_one_are_answered_after_it_and_others_before_it(cluster):
    unknown = [f"unknown-{number}" for number in range(3000)]
    many = MetadataRequest(topics=unknown, allow_auto_topic_creation=False)
    few = MetadataRequest(topics=["t"])
    told: list[str] = []
    one, other = (SimulatedConnection(cluster.network, CLIENT, None, 1) for _ in range(2))
    for connection, name, request in (
        (one, "long", many),
        (one, "behind it", few),
        (other, "of another client", few),
    ):
        connection.send(
            metadata.API,
            4,
            request,
            timeout_ms=60_000,
            on_reply=lambda _, name=name: told.append(name),
        )
    cluster.loop.run_for(1000)
    assert told == ["of another client", "long", "behind it"]


def test_what_a_follower_may_fetch_since_its_first_look_is_no_secret_until_its_time_is_over(
    tmp_path, monkeypatch
):
    """Its fetch of many partitions is read in several turns; a record comes between two of them."""
    cluster = SimulatedCluster(tmp_path, 2, default_replication_factor="2")
    assert cluster.create_topic("many", 60).error_code == 0
    cluster.loop.run_for(3000)
    tp = TopicPartition("many", 0)
    leader = cluster.state(tp).leader
    broker = cluster[leader]
    requests = broker.parts.requests
    # Each step takes a turn of its own.
    monkeypatch.setattr(requests.long_work, "work_ns", itertools.count(0, 10_000_000).__next__)
    appended_ms: list[int] = []

    def append() -> None:
        appended_ms.append(cluster.loop.now_ms)
        broker.replicas.get(tp).append(make_batch(), acks=-1)

    class Answering(fetch_handler._Answering):
        def begin(self):
            for step in super().begin():
                is_here = self.handler.reader is requests.reader
                is_follower = is_here and self.request.replica_id >= 0
                if is_follower and not appended_ms:
                    append()
                yield step

    cluster.loop.run_for(700)
    monkeypatch.setattr(fetch_handler, "_Answering", Answering)

    def has_appended() -> bool:
        for session in requests.fetch_sessions:
            if isinstance(session, FollowerSession) and not appended_ms:
                # As after news of all of them.
                session.due = dict.fromkeys(session.partitions)
        return bool(appended_ms)

    cluster.loop.run_until(has_appended)
    hosted = broker.replicas.get(tp)
    cluster.loop.run_until(lambda: hosted.high_watermark == 1)
    assert cluster.loop.now_ms - appended_ms[0] < 100
    cluster.close()
