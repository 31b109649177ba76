"""Transactions and micro-batches under random trouble in simulated time: brokers are killed and
restarted, links cut, sessions lost, while producers of both kinds commit and abort, and drivers
commit batches with losers, replays and zombies. Once it is over every transaction is whole or not there, batches
are there once and in order, and nothing holds the last stable offset (KIP-98, KIP-890,
R-SPARK2).

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
from storage_engine.protocol.apis import (
    add_partitions_to_txn,
    commit_batch,
    end_txn,
    find_coordinator,
    init_producer_id,
    join_batch,
)
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT, iter_headers
from storage_engine.simulation.broker import SESSION_TIMEOUT_MS
from storage_engine.simulation.cluster import SimulatedCluster
from storage_engine.simulation.requests import make_batch

ALL_FAULTS = os.environ.get("HEADRACE_FAULTS") == "full"
SEEDS = range(40 if ALL_FAULTS else 2)
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
STEPS = 120 if ALL_FAULTS else 45
QUIET_EVERY = 30 if ALL_FAULTS else 15
TIMEOUT_MS = 8_000
SINK = "sink"

_Topic = add_partitions_to_txn.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic


class Actor:
    """Asks one thing after another, and never waits: who is told goes on in a callback."""

    produce_version = 8

    def __init__(self, world: "World", transactional_id: str) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[TopicPartition, int] = {}

    def ask(
        self,
        spec: Any,
        version: int,
        request: Any,
        codes: Callable[[Any], list[int]],
        then: Callable[[Any, ErrorCode], None],
    ) -> None:
        """`then` gets the answer with its worst code; what is retriable is asked again."""
        world = self.world

        def on_found(answer: Any) -> None:
            if isinstance(answer, TransportError) or answer.error_code:
                world.later(again)
            else:
                world.send(answer.node_id, spec, version, request, on_reply)

        def on_reply(answer: Any) -> None:
            if isinstance(answer, TransportError):
                world.later(again)
                return
            worst = [ErrorCode.of(code) for code in codes(answer) if code]
            final = [code for code in worst if not code.retriable]
            if final or not worst:
                then(answer, final[0] if final else ErrorCode.NONE)
            else:
                world.later(again)

        def again() -> None:
            wanted = find_coordinator.FindCoordinatorRequest(key=self.transactional_id, key_type=1)
            world.send(world.some_broker(), find_coordinator.API, 3, wanted, on_found)

        again()

    def add(self, partitions: list[TopicPartition], then: Callable[[ErrorCode], None]) -> None:
        request = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                _Topic(name=PARTITIONS[0].topic, partitions=[p for _, p in partitions])
            ],
        )

        def codes(answer: Any) -> list[int]:
            (topic,) = answer.results_by_topic_v3_and_below
            return [row.partition_error_code for row in topic.results_by_partition]

        self.ask(add_partitions_to_txn.API, 3, request, codes, lambda _, code: then(code))

    def write(
        self, partitions: list[TopicPartition], payload: bytes, then: Callable[[ErrorCode], None]
    ) -> None:
        """The same to all partitions; `then` hears the worst, once all are answered."""
        outcomes: list[ErrorCode] = []

        def settle(code: ErrorCode) -> None:
            outcomes.append(code)
            if len(outcomes) == len(partitions):
                then(next((each for each in outcomes if each), ErrorCode.NONE))

        for tp in partitions:
            self._write_one(tp, payload, settle)

    def _write_one(
        self, tp: TopicPartition, payload: bytes, then: Callable[[ErrorCode], None]
    ) -> None:
        sequence = self.sequences.get(tp, 0)
        self.sequences[tp] = sequence + 1
        # It may be sent again when the producer is in its next transaction.
        producer = self.producer_id, self.epoch, sequence
        world = self.world

        def send() -> None:
            batch = make_batch(payload=payload, producer=producer, attributes=TRANSACTIONAL_BIT)
            partition = ProducePartition(*tp, batch)
            request = ProduceRequest(self.transactional_id, -1, 5_000, [partition])
            leader = world.cluster.state(tp).leader
            world.send(leader, PRODUCE, self.produce_version, request, on_reply)

        def on_reply(answer: Any) -> None:
            if isinstance(answer, TransportError):
                world.later(send)
                return
            code = ErrorCode.of(answer.partitions[0].error_code)
            if code.retriable:
                world.later(send)
            else:
                then(code)

        send()


class Producer(Actor):
    """A transactional producer that commits two of three transactions; after a final error another
    one takes its place, and now and then one that does not wait for that."""

    end_version = 4
    replaced = False

    def run(self) -> None:
        request = init_producer_id.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        self.ask(init_producer_id.API, 4, request, lambda a: [a.error_code], self._on_id)

    def _on_id(self, answer: Any, code: ErrorCode) -> None:
        assert code is ErrorCode.NONE, code
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._next()

    def _next(self) -> None:
        world = self.world
        if world.over:
            return
        number = world.number()
        partitions = world.random.sample(PARTITIONS, 2)
        payload = b"<t%d>" % number
        commits = world.random.random() < 0.7
        world.sent[payload] = partitions

        ends = False

        def added(code: ErrorCode) -> None:
            if code:
                give_up()
            else:
                self.write(partitions, payload, written)

        def written(code: ErrorCode) -> None:
            if ends:
                return
            if code:
                give_up()
            else:
                end()

        def end() -> None:
            nonlocal ends
            ends = True
            request = end_txn.EndTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                committed=commits,
            )
            self.ask(end_txn.API, self.end_version, request, lambda a: [a.error_code], ended)

        def lose_patience() -> None:
            nonlocal commits
            if not ends and not self.replaced:
                commits = False
                end()

        def ended(answer: Any, code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self._note_end(answer)
                (world.committed if commits else world.aborted).add(payload)
                world.next(self._next)
            else:
                give_up()

        def give_up() -> None:
            if not self.replaced:
                self.replaced = True
                world.later(type(self)(world, self.transactional_id).run)

        if not self.replaced and world.random.random() < 0.1:
            # Somebody starts a second one, while this one goes on.
            give_up()
        if self.end_version < 5:
            self.add(partitions, added)
        else:
            if world.random.random() < 0.3:
                # It aborts while its batches are under way, some of them for long.
                world.later(lose_patience)
            self.write(partitions, payload, written)

    def _note_end(self, answer: Any) -> None:
        if self.end_version >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}


class WritingProducer(Producer):
    """One that enlists nothing, has an epoch for each transaction, and aborts at any moment."""

    produce_version = 12
    end_version = 5


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
