"""How many product files a request touches on a broker until it is answered.

    python .ci/walks.py [--files] [--json]

A cluster of three real brokers runs over simulated ports. Every function that the broker of
interest calls is traced, from the frame's arrival until the answer has left, or until a failover is
over. Produce and fetch come over a real `net.connection` that has no socket, after requests alike.

A file counts once, when one of its functions was at work: any function, method, lambda or
generator, however short, also one that only passes on or answers a question. These are no work:

- a constructor with its contents: making a part for later is no step of the walk;
- a property, a constant, a NamedTuple, and a setting of the broker: values that are looked up;
- work that merely goes on at the same time: the client, the other brokers, the simulation, the
  broker's own fetches as a follower, and its followers' fetches, except for their positions.

A commit of a micro-batch ends as a transaction does. So it is printed, too, which of its files a
plain transactional produce (enlist, produce, commit) does not touch on any of the brokers.
"""

import argparse
import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, TypeVarTuple
from uuid import UUID

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from simulation.tests.world.simulated_producer import SimulatedProducer  # noqa: E402
from simulation.world.broker import SimulatedBroker  # noqa: E402
from simulation.world.clock import ProcessLoop, SimulatedLoop  # noqa: E402
from simulation.world.cluster import SimulatedCluster  # noqa: E402
from simulation.world.requests import (  # noqa: E402
    fetch_request,
    make_batch,
    produce_request,
)
from storage_engine.broker.handlers.records.fetch import FetchHandler  # noqa: E402
from storage_engine.broker.replicas.fetcher import PeerFetcher  # noqa: E402
from storage_engine.broker.replicas.follower_watches import FollowerWatches  # noqa: E402
from storage_engine.broker.replicas.hosted_partition import HostedPartition  # noqa: E402
from storage_engine.broker.requests.delayed_fetch import DelayedFetch  # noqa: E402
from storage_engine.broker.settings.dynamic_config import DynamicConfig  # noqa: E402
from storage_engine.core.ids import TopicPartition  # noqa: E402
from storage_engine.core.transactions.transaction_state import member_transactional_id  # noqa: E402
from storage_engine.net.connection import Connection  # noqa: E402
from storage_engine.net.frames import joined  # noqa: E402
from storage_engine.net.limits import ServerLimits  # noqa: E402
from storage_engine.net.server import Server  # noqa: E402
from storage_engine.net.serving import ServedListener  # noqa: E402
from storage_engine.protocol.apis import commit_batch, fetch, join_batch, produce  # noqa: E402
from storage_engine.protocol.apis.commit_batch import CommitBatchResponse  # noqa: E402
from storage_engine.protocol.apis.join_batch import JoinBatchResponse  # noqa: E402
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp  # noqa: E402
from storage_engine.protocol.framing import encode_request_frame  # noqa: E402

Args = TypeVarTuple("Args")

PRODUCT = ROOT / "storage_engine"
OUTSIDE = (str(PRODUCT / "tests"),)
TOPIC = TopicPartition("t", 0)
SINK, QUERY = "sink", "query"


COUNTS_WITHIN: dict[CodeType, bool] = {
    fetch.API.decode_request.__code__: False,
    FetchHandler.handle.__code__: False,
    DelayedFetch.check.__code__: False,
    FollowerWatches.note.__code__: False,
    FollowerWatches.wake.__code__: False,
    HostedPartition.follower_fetched.__code__: True,
    DynamicConfig.get.__code__: False,
    DynamicConfig.flag.__code__: False,
}
"""Whether calls within these functions count, in a walk that is no fetch."""

OWN_FETCHES = PeerFetcher._on_reply.__code__.co_filename


CONSTRUCTORS = {"__init__", "__post_init__", "__new__"}


class Walk:
    """Collects the functions that some brokers enter."""

    def __init__(
        self, cluster: SimulatedCluster, *brokers: SimulatedBroker, is_fetch: bool = False
    ) -> None:
        self.cluster = cluster
        self.brokers = brokers
        self._entered: dict[ProcessLoop | None, set[CodeType]] = {}
        self._of_event: set[CodeType] = set()
        self._counts_within = {} if is_fetch else COUNTS_WITHIN
        self._counts = [True]

    @contextmanager
    def traced(self) -> Iterator[None]:
        """Trace the events of the brokers' processes within the block."""
        loop = self.cluster.loop
        loop.after_event = self.take
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            loop.after_event = None

    def take(self, process: ProcessLoop | None) -> None:
        """Count the functions entered since the last event as the work of this process."""
        self._entered.setdefault(process, set()).update(self._of_event)
        self._of_event.clear()

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        counts = False if code.co_filename == OWN_FETCHES else self._counts_within.get(code)
        if event == "call":
            if code is SimulatedLoop._run_one.__code__:
                self._of_event.clear()  # what a client did between two events
            if counts is not None:
                self._counts.append(counts)
            if self._counts[-1]:
                self._of_event.add(code)
        elif event == "return" and counts is not None:
            self._counts.pop()

    def product_files(self) -> list[str]:
        entered: set[CodeType] = set()
        for broker in self.brokers:
            entered |= self._entered.get(broker.loop, set())
        return sorted(
            {
                str(Path(code.co_filename).relative_to(PRODUCT))
                for code in entered
                if code.co_filename.startswith(str(PRODUCT))
                and not code.co_filename.startswith(OUTSIDE)
                and _is_work(code)
            }
        )


def _is_work(code: CodeType) -> bool:
    """Whether a function is neither part of a constructor nor a property."""
    path = code.co_qualname.split(".")
    if CONSTRUCTORS.intersection(path):
        return False
    found: object = _modules().get(code.co_filename)
    for name in path:
        found = getattr(found, "__dict__", {}).get(name)
    return not isinstance(found, property)


@cache
def _modules() -> dict[str, ModuleType]:
    return {file: m for m in list(sys.modules.values()) if (file := getattr(m, "__file__", None))}


class Wire:
    """A transport that keeps what is sent, and the part of an event loop that a server uses."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self._socket = socket.socket()
        self.sent = b""

    def call_soon(self, callback: Callable[[*Args], None], *arguments: *Args) -> None:
        self._broker.loop.call_soon(partial(callback, *arguments))

    def get_extra_info(self, name: str) -> socket.socket | tuple[str, int]:
        return self._socket if name == "socket" else ("10.0.0.1", 1)

    def write(self, data: bytes) -> None:
        self.sent += bytes(data)

    def get_write_buffer_size(self) -> int:
        return 1  # so that nothing is written past us

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


class Client:
    """A connection to a broker, without a socket."""

    def __init__(self, broker: SimulatedBroker) -> None:
        wire: Any = Wire(broker)
        limits = ServerLimits(request_max_bytes=1 << 20)
        listener = ServedListener(host="", handle=broker.parts.dispatcher)
        self.wire = wire
        self._connection = Connection(Server(wire, [listener], limits), listener)
        self._connection.connection_made(wire)

    def receive(self, frame: bytes) -> None:
        buffer = self._connection.get_buffer(-1)
        buffer[: len(frame)] = frame
        self._connection.buffer_updated(len(frame))


def _ask(walk: Walk, spec: ApiSpec[Req, Resp], version: int, request: Req) -> None:
    """Send a request three times, each until its answer has left; the last one is traced."""
    (broker,) = walk.brokers
    client = Client(broker)
    frame = joined(encode_request_frame(spec, version, 1, "walks", request))
    for _ in range(2):
        answered = len(client.wire.sent)
        client.receive(frame)
        walk.cluster.loop.run_until(lambda: len(client.wire.sent) > answered)  # noqa: B023
        # Until the followers wait for data again, as they do most of the time.
        walk.cluster.loop.run_for(100)
    answered = len(client.wire.sent)
    with walk.traced():
        client.receive(frame)
        walk.take(broker.loop)
        walk.cluster.loop.run_until(lambda: len(client.wire.sent) > answered)


def walk_produce(cluster: SimulatedCluster) -> Walk:
    walk = Walk(cluster, cluster[cluster.state(TOPIC).leader])
    request = produce_request(*TOPIC, make_batch(), acks=-1)
    _ask(walk, produce.API, 9, request)
    return walk


def walk_fetch(cluster: SimulatedCluster) -> Walk:
    walk = Walk(cluster, cluster[cluster.state(TOPIC).leader], is_fetch=True)
    _ask(walk, fetch.API, 11, fetch_request(*TOPIC, 0))
    return walk


def walk_transaction(cluster: SimulatedCluster) -> Walk:
    """Walk a transactional produce to one partition: enlisted, written, committed."""
    walk = Walk(cluster, *cluster.brokers)
    producer = SimulatedProducer(cluster, "plain")
    producer.init()
    for number in range(3):
        cluster.loop.run_for(2_000)
        with walk.traced() if number else nullcontext():
            producer.add(TOPIC)
            producer.write(TOPIC, b"row")
            producer.end(commits=True)
    return walk


def walk_commit(cluster: SimulatedCluster) -> Walk:
    """Walk the CommitBatch of a micro-batch of one member, at its coordinator."""
    first = _member(cluster, 0)
    commit = partial(commit_batch.CommitBatchRequest, sink=SINK, query=QUERY)
    members = frozenset([(first.producer_id, first.epoch)])
    first.ask_coordinator(commit_batch.API, 0, commit(batch=0, members=members), _code)
    second = _member(cluster, 1)
    coordinator = cluster[second.coordinator()]
    walk = Walk(cluster, coordinator)
    members = frozenset([(second.producer_id, second.epoch)])
    request = commit(batch=1, members=members)
    cluster.loop.run_for(2_000)
    with walk.traced():
        answers = cluster.ask(coordinator.id, commit_batch.API, 0, request)
        cluster.loop.run_until(lambda: bool(answers))
    assert isinstance(answers[0], CommitBatchResponse) and not answers[0].error_code
    return walk


def _member(cluster: SimulatedCluster, batch: int) -> SimulatedProducer:
    member = SimulatedProducer(cluster, member_transactional_id(SINK))
    request = join_batch.JoinBatchRequest(
        sink=SINK, query=QUERY, batch=batch, timeout_ms=60_000, nonce=UUID(int=1)
    )
    answer = member.ask_coordinator(join_batch.API, 0, request, _code)
    member.producer_id, member.epoch = answer.producer_id, answer.producer_epoch
    member.add(TOPIC)
    member.write(TOPIC, b"row")
    return member


def _code(answer: CommitBatchResponse | JoinBatchResponse) -> list[int]:
    return [answer.error_code]


def walk_failover(cluster: SimulatedCluster) -> Walk:
    """Walk a failover: the controller dies, which leads a partition, and another one elects."""
    old = cluster.controller
    assert old is not None
    cluster.reassign(TOPIC, [old.id, *(b.id for b in cluster.brokers if b is not old)])
    cluster.loop.run_for(5_000)
    cluster.elect_preferred(TOPIC)
    cluster.loop.run_until(lambda: cluster.state(TOPIC).leader == old.id)
    cluster.loop.run_for(2_000)
    old.kill(session_ends_at_once=True)

    def is_over() -> bool:
        return cluster.controller is not None and cluster.state(TOPIC).leader not in (-1, old.id)

    walk = Walk(cluster)
    with walk.traced():
        cluster.loop.run_until(is_over)
    assert cluster.controller is not None
    walk.brokers = (cluster.controller,)
    return walk


COMMIT, TRANSACTION = "commit of a micro-batch", "transactional produce"

WALKS: dict[str, Callable[[SimulatedCluster], Walk]] = {
    "produce, acks=all": walk_produce,
    "fetch": walk_fetch,
    TRANSACTION: walk_transaction,
    COMMIT: walk_commit,
    "controller failover": walk_failover,
}


def walks() -> dict[str, list[str]]:
    """Return the files of each walk, by its name."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        cluster = SimulatedCluster(Path(folder), transaction_state_log_num_partitions="3")
        assert cluster.create_topic(TOPIC.topic).error_code == 0
        cluster.produced(TOPIC, b"first")
        for name, walk in WALKS.items():
            found[name] = walk(cluster).product_files()
        cluster.close()
    beyond = set(found[COMMIT]) - set(found[TRANSACTION])
    found[f"{COMMIT}, beyond a {TRANSACTION}"] = sorted(beyond)
    return found


def main() -> None:
    """Print the walks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--files", action="store_true", help="name the files, too")
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    args = parser.parse_args()
    found = walks()
    if args.json:
        print(json.dumps(found, indent=2))
        return
    for name, files in found.items():
        print(f"{name}: {len(files)}")
        for file in files if args.files else ():
            print(f"    {file}")


if __name__ == "__main__":
    main()
