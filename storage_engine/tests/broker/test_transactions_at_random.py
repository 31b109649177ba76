"""Transactions and micro-batches under random trouble in simulated time: brokers are killed and
restarted, links cut, sessions lost, while producers of both kinds commit and abort, and drivers
commit batches with losers, replays and zombies. Once it is over every transaction is whole or not
there, batches are there once and in order, and nothing holds the last stable offset (KIP-98,
KIP-890, R-SPARK2).

A failing seed replays: `HEADRACE_FAULTS=full` runs all of them.
"""

import os
import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import SessionState, TransportError
from storage_engine.core.sink_names import member_transactional_id
from storage_engine.protocol.apis import commit_batch, join_batch
from storage_engine.protocol.record_batch import HEADER_BYTES, iter_headers
from storage_engine.simulation.broker import SESSION_TIMEOUT_MS
from storage_engine.simulation.cluster import SimulatedCluster
from storage_engine.tests.broker.transactional_actors import (
    PARTITIONS,
    TIMEOUT_MS,
    Actor,
    Producer,
    WritingProducer,
)

ALL_FAULTS = os.environ.get("HEADRACE_FAULTS") == "full"
SEEDS = range(40 if ALL_FAULTS else 2)
STEPS = 120 if ALL_FAULTS else 45
QUIET_EVERY = 30 if ALL_FAULTS else 15
SINK = "sink"


class Attempt(Actor):
    """A task attempt in a micro-batch."""

    def join(self, batch: int, then: Callable[[ErrorCode], None]) -> None:
        request = join_batch.JoinBatchRequest(
            sink=SINK, query="q", batch=batch, timeout_ms=TIMEOUT_MS, nonce=UUID(int=batch)
        )

        def on_answer(answer: Any, code: ErrorCode) -> None:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            then(code)

        self.ask(join_batch.API, 0, request, lambda a: [a.error_code], on_answer)


class Driver:
    """Runs a batch with two tasks and, now and then, a loser or a zombie driver beside it. After a
    failure another driver replays what follows the last batch that is known to be committed."""

    def __init__(self, world: "World", batch: int, *, is_zombie: bool = False) -> None:
        self.world = world
        self.batch = batch
        self.is_zombie = is_zombie
        self.name = world.number()

    def run(self) -> None:
        world = self.world
        if world.over:
            return
        world.drivers += 1
        winners = [Attempt(world, member_transactional_id(SINK)) for _ in range(2)]
        everyone = list(winners)
        if world.random.random() < 0.3:
            everyone.append(Attempt(world, member_transactional_id(SINK)))
        outcomes: list[ErrorCode] = []
        batch = self.batch

        def done(code: ErrorCode) -> None:
            outcomes.append(code)
            if len(outcomes) < len(winners):
                return
            if ErrorCode.ALREADY_COMMITTED in outcomes:
                self._go_on(batch)
            elif any(outcomes):
                self._replay()
            else:
                commit()

        def commit() -> None:
            request = commit_batch.CommitBatchRequest(
                sink=SINK,
                query="q",
                batch=batch,
                members=frozenset((each.producer_id, each.epoch) for each in winners),
            )
            winners[0].ask(commit_batch.API, 0, request, lambda a: [a.error_code], committed)

        def committed(_answer: Any, code: ErrorCode) -> None:
            if code in (ErrorCode.NONE, ErrorCode.ALREADY_COMMITTED):
                self._go_on(batch)
            else:
                self._replay()

        for number, attempt in enumerate(everyone):
            counts = number < len(winners)
            self._work(attempt, number, done if counts else lambda code: None)
        if not self.is_zombie and world.random.random() < 0.2:
            world.later(Driver(world, batch, is_zombie=True).run)

    def _work(self, attempt: Attempt, number: int, then: Callable[[ErrorCode], None]) -> None:
        partitions = self.world.random.sample(PARTITIONS, 2)
        payload = b"<b%d by %d.%d>" % (self.batch, self.name, number)

        def joined(code: ErrorCode) -> None:
            if code:
                then(code)
            else:
                attempt.add(partitions, added)

        def added(code: ErrorCode) -> None:
            if code:
                then(code)
            else:
                self.world.sent[payload] = partitions
                attempt.write(partitions, payload, then)

        attempt.join(self.batch, joined)

    def _go_on(self, batch: int) -> None:
        self.world.last = max(self.world.last, batch)
        if not self.is_zombie:
            self.world.next(Driver(self.world, batch + 1).run)

    def _replay(self) -> None:
        if not self.is_zombie:
            self.world.later(Driver(self.world, self.world.last + 1).run)


class World:
    """One run."""

    def __init__(self, cluster: SimulatedCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.over = False
        self.drivers = 0
        self.last = -1
        """Of the batches that a driver knows to be committed."""
        self.sent: dict[bytes, list[TopicPartition]] = {}
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        self._numbers = 0

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    def later(self, act: Callable[[], None]) -> None:
        self.cluster.loop.call_later(self.random.randint(20, 300), act)

    def next(self, act: Callable[[], None]) -> None:
        """After a pause, so that calm times are not all that there is to simulate."""
        self.cluster.loop.call_later(self.random.randint(100, 800), act)

    def some_broker(self) -> int:
        return self.random.choice(self.cluster.brokers).id

    def send(
        self, broker: int, spec: Any, version: int, request: Any, on_reply: Callable[[Any], None]
    ) -> None:
        if broker == -1 or not self.cluster[broker].serving:
            on_reply(TransportError(reason="nobody there"))
            return
        self.cluster.network.send(
            0, broker, spec, version, request, timeout_ms=6_000, on_reply=on_reply
        )

    def trouble(self) -> None:
        cluster, choose = self.cluster, self.random
        broker = choose.choice(cluster.brokers)
        match choose.randint(0, 19):
            case 0 if broker.up:
                broker.kill(session_ends_at_once=choose.random() < 0.5)
            case 1 | 2 | 3 | 4 if not broker.up:
                broker.start()
            case 5 if broker.up and broker.session.state is SessionState.CONNECTED:
                broker.session.cut_off()
            case 6 | 7 if broker.up and broker.session.state is SessionState.SUSPENDED:
                broker.session.reconnect()
            case 8:
                other = choose.choice(cluster.brokers)
                if other is not broker:
                    cluster.network.cut(broker.id, other.id)
            case 9 | 10 | 11:
                cluster.network.heal()
        cluster.loop.run_for(int(choose.expovariate(1 / 300)))

    def heal(self) -> None:
        cluster = self.cluster
        cluster.network.heal()
        for broker in cluster.brokers:
            if not broker.up:
                broker.start()
            if broker.session.state is SessionState.SUSPENDED:
                broker.session.reconnect()
        cluster.loop.run_for(SESSION_TIMEOUT_MS)

    def settled(self) -> bool:
        for tp in PARTITIONS:
            leader = self.cluster.state(tp).leader
            if leader == -1 or not self.cluster[leader].serving:
                return False
            led = self.cluster[leader].context.replicas.get(tp)
            if led is None or led.leader is None:
                return False
            if led.last_stable_offset != led.log.log_end_offset:
                return False
        return True

    def read_committed(self, tp: TopicPartition) -> list[bytes]:
        """What such a reader gets of the partition, in order."""
        led = self.cluster[self.cluster.state(tp).leader].context.replicas.get(tp)
        log = led.log
        end = led.last_stable_offset
        coming = {(a.producer_id, a.first_offset) for a in log.aborted_transactions(0, end)}
        aborting: set[int] = set()
        values = []
        offset = log.log_start_offset
        while (piece := log.read(offset, max_bytes=1 << 20, max_offset=end)) is not None:
            data = bytes(piece.view())
            for position, header in iter_headers(data):
                producer = header.producer_id
                if (producer, header.base_offset) in coming:
                    aborting.add(producer)
                if header.is_control:
                    aborting.discard(producer)
                elif producer not in aborting:
                    start = position + HEADER_BYTES
                    values.append(data[start : position + header.size_in_bytes])
            offset = piece.end_offset
        return values


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_transactions_are_whole_and_batches_once_and_in_order(tmp_path, seed):
    cluster = SimulatedCluster(
        tmp_path,
        transaction_state_log_num_partitions="3",
        transaction_abort_timed_out_transaction_cleanup_interval_ms="500",
        min_insync_replicas="2",
        replica_lag_time_max_ms="2000",
    )
    assert cluster.create_topic("t", partitions=len(PARTITIONS)).error_code == 0
    world = World(cluster, seed)
    for name in ("p", "q"):
        Producer(world, name).run()
    WritingProducer(world, "w").run()
    Driver(world, 0).run()
    for step in range(STEPS):
        world.trouble()
        if step % QUIET_EVERY == QUIET_EVERY - 1:
            world.heal()
    world.over = True
    world.heal()
    # What is open times out, and who still asks gets an answer.
    cluster.loop.run_for(3 * TIMEOUT_MS)
    cluster.loop.run_until(world.settled, limit_ms=300_000)
    read = {tp: world.read_committed(tp) for tp in PARTITIONS}
    where: dict[bytes, list[TopicPartition]] = {}
    for tp, values in read.items():
        assert len(values) == len(set(values)), f"{tp} has something twice"
        for value in values:
            where.setdefault(value, []).append(tp)
    for value, found in where.items():
        assert sorted(found) == sorted(world.sent[value]), f"{value!r} is torn"
    assert world.committed <= where.keys(), "a committed transaction is lost"
    assert not world.aborted & where.keys(), "an aborted transaction is there"
    batches: dict[int, set[bytes]] = {}
    for value in where:
        if value.startswith(b"<b"):
            number, writer = value[2:-1].split(b" by ")
            batches.setdefault(int(number), set()).add(writer)
    for batch, writers in batches.items():
        drivers = {writer.split(b".")[0] for writer in writers}
        assert len(drivers) == 1 and len(writers) == 2, f"batch {batch} is by {writers!r}"
    assert set(range(world.last + 1)) <= batches.keys(), "a batch is lost"
    for tp, values in read.items():
        order = [int(v[2:].split(b" ")[0]) for v in values if v.startswith(b"<b")]
        assert order == sorted(order), f"batches are out of order in {tp}"
    assert len(world.committed) > 5 and world.aborted and world.last > 1, "too quiet"
    cluster.close()
