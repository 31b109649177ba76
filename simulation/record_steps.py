"""The brokers' cost of one acknowledged record, step by step: calls and processor time.

Three brokers run in this process in simulated time. A producer sends one record with acks=all to
a leader whose two followers and whose consumer wait, and the next one when everything has come to
rest. What the simulation itself does is counted for neither: its calls are left out, and so is the
time in which it carries messages. Sockets are not there: `strace` counts what these cost.
"""

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from simulation.world.clock import ProcessLoop
from simulation.world.cluster import SimulatedCluster
from simulation.world.network import BASE_PORT, CLIENT, SimulatedConnection, SimulatedTransport
from simulation.world.requests import make_batch, produce_request
from storage_engine.core.ids import TopicPartition, topic_id_to_text
from storage_engine.core.ports import Endpoint, TransportError
from storage_engine.protocol.apis.fetch import API as FETCH
from storage_engine.protocol.apis.fetch import (
    READ_COMMITTED,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProduceResponse
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp

Receive = Callable[[SimulatedConnection, memoryview], None]

TOPIC = "record"
FETCH_VERSION = 16
PRODUCE_VERSION = 10
"""The versions of Fetch and Produce that librdkafka 2.16 uses."""

LEADER = "leader"
FOLLOWER = "follower"
SIDES = {LEADER: 1, FOLLOWER: 2}
"""The number of brokers on each side."""

REST_MS = 20
"""The time in which a record is acknowledged and read; then all wait for the next one."""
WAIT_MS = 500
WARM_UP = 50

READ = "produce is read, its batch appended"
WAKE = "end of the turn: waiting fetches are answered"
TAKE = "the answer is appended, the next fetch sent"
ACKNOWLEDGE = "fetch of a follower: it has the record"
CONSUME = "fetch of the consumer: it is read on, and waits"
OTHER = "timers and all else"


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of a record on the leader, or on one of its followers."""

    broker: str
    step: str
    times: float
    """How often the step is done for one record."""
    calls: float
    """The calls of functions of Python and of C in one step."""
    us: float | None
    """The processor time of one step, in µs."""


_Steps = defaultdict[tuple[str, str], list[float]]
"""The cost of each execution, by broker and step."""


class RecordSteps:
    """Three brokers, a partition that the first leads, a producer and a consumer."""

    def __init__(self, folder: Path) -> None:
        self._cluster = SimulatedCluster(
            folder,
            3,
            default_replication_factor="3",
            min_insync_replicas="2",
            auto_create_topics_enable="false",
        )
        created = self._cluster.create_topic(TOPIC, 1)
        assert created.error_code == 0, created
        self._tp = tp = TopicPartition(TOPIC, 0)
        self._cluster.loop.run_for(5_000)
        leader = self._cluster.state(tp).leader
        self._leader = self._cluster[leader]
        self._endpoint = Endpoint(broker_id=leader, host="", port=BASE_PORT + leader)
        self._transport = SimulatedTransport(self._cluster.network, CLIENT)
        self._topic_id = topic_id_to_text(self._cluster.topic_id(TOPIC))
        self._offset = 0
        self.acknowledged = 0
        self.consumed = 0
        self._step = OTHER
        for broker in self._cluster.brokers:
            broker.receive = self._watched(broker.receive)  # type: ignore[assignment, method-assign]
        self._consume()

    def close(self) -> None:
        """End the brokers."""
        self._cluster.close()

    def rows(self, records: int) -> list[StepRow]:
        """Send so many records twice: their calls are counted, then their time is taken."""
        self._send(WARM_UP)
        calls, us = _Steps(list), _Steps(list)
        with _counting() as count:
            self._measure(records, calls, count)
        self._measure(records, us, lambda: time.thread_time_ns() / 1000)
        return [
            StepRow(
                broker,
                step,
                round(len(spent) / records / SIDES[broker], 2),
                round(statistics.mean(spent), 1),
                round(statistics.median(us[broker, step]), 1) if us[broker, step] else None,
            )
            for (broker, step), spent in sorted(calls.items(), key=lambda item: item[0])
        ]

    def _measure(self, records: int, steps: _Steps, now: Callable[[], float]) -> None:
        begun = 0.0
        leader = self._leader.loop

        def before() -> None:
            nonlocal begun
            self._step = OTHER
            begun = now()

        def after(process: ProcessLoop | None) -> None:
            spent = now() - begun
            if process is not None:
                broker = LEADER if process is leader else FOLLOWER
                step = self._step
                if step == OTHER:
                    step = WAKE if process is leader else TAKE
                steps[broker, step].append(spent)
            before()

        loop = self._cluster.loop
        loop.after_event = after
        before()
        try:
            self._send(records, before)
        finally:
            loop.after_event = None

    def _watched(self, receive: Receive) -> Receive:
        def received(connection: SimulatedConnection, frame: memoryview) -> None:
            if frame[1] == PRODUCE.key:
                self._step = READ
            elif frame[1] == FETCH.key:
                self._step = CONSUME if connection.sender == CLIENT else ACKNOWLEDGE
            receive(connection, frame)

        return received

    def _send(self, records: int, before: Callable[[], None] = lambda: None) -> None:
        for _ in range(records):
            request = produce_request(TOPIC, 0, make_batch(payload=bytes(100)), acks=-1)
            self._ask("produce", PRODUCE, PRODUCE_VERSION, request, self._on_acknowledged)
            before()
            self._cluster.loop.run_for(REST_MS)

    def _ask(
        self,
        channel: str,
        spec: ApiSpec[Req, Resp],
        version: int,
        request: Req,
        on_reply: Callable[[Resp | TransportError], None],
    ) -> None:
        self._transport.request(
            self._endpoint, channel, spec, version, request, timeout_ms=60_000, on_reply=on_reply
        )

    def _on_acknowledged(self, answer: ProduceResponse | TransportError) -> None:
        assert isinstance(answer, ProduceResponse), answer
        assert answer.partitions[0].error_code == 0, answer
        self.acknowledged += 1

    def _consume(self) -> None:
        wanted = FetchPartition(self._topic_id, 0, self._offset, 1 << 20)
        request = FetchRequest(WAIT_MS, 1, 50 << 20, [wanted], isolation_level=READ_COMMITTED)
        self._ask("fetch", FETCH, FETCH_VERSION, request, self._on_fetched)

    def _on_fetched(self, answer: FetchResponse | TransportError) -> None:
        assert isinstance(answer, FetchResponse), answer
        found = answer.partitions[0]
        assert found.error_code == 0, found
        if found.records:
            self.consumed += 1
            self._offset = found.high_watermark
        self._consume()


@contextmanager
def _counting() -> Iterator[Callable[[], float]]:
    """Counts calls, but for those within the simulation and the measurement."""
    calls = 0
    left_out: dict[str, bool] = {}

    def count(frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        if event not in ("call", "c_call"):
            return
        file = frame.f_code.co_filename
        is_out = left_out.get(file)
        if is_out is None:
            is_out = left_out[file] = "/simulation/" in file or file == __file__
        if not is_out:
            calls += 1

    sys.setprofile(count)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(None)
