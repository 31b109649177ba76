"""Producers' batches that are decompressed or compressed anew wait for a thread: which of them
wait, in which order they are appended, and what is checked again when they are."""

import copy
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from simulation.tests.world.simulated_producer import SimulatedProducer
from simulation.world.cluster import SimulatedCluster
from simulation.world.requests import ANSWER_MS, produce_request
from storage_engine.broker.replicas import producer_appends
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.log.append_rules import AppendResult
from storage_engine.protocol.apis.produce import API as PRODUCE
from storage_engine.protocol.apis.produce import ProducePartition, ProduceRequest
from storage_engine.protocol.records.compression import codec_named, recompressed
from storage_engine.protocol.records.record_batch import (
    HEADER_BYTES,
    Codec,
    iter_headers,
    read_header,
)
from storage_engine.protocol.records.record_decoder import decode_batches
from storage_engine.protocol.records.record_encoder import encode_batches
from storage_engine.tests.broker.settings.settings_requests import DONE, SET, TOPIC, alter
from storage_engine.tests.log.transaction_support import transactional

COMPACTED, PLAIN = TopicPartition("compacted", 0), TopicPartition("plain", 0)


def batch_of(
    *values: bytes,
    codec: str = "zstd",
    producer: tuple[int, int, int] = (-1, -1, -1),
    key: bytes | None = b"k",
) -> memoryview:
    """A batch with that codec, be it larger for it."""
    producer_id, epoch, sequence = producer
    (batch,) = encode_batches(
        pa.array(list(values), pa.binary()),
        pa.array([key] * len(values), pa.binary()),
        now_ms=1000,
        batch_bytes=1 << 30,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    return memoryview(
        recompressed(read_header(batch.data), batch.data[HEADER_BYTES:], codec_named(codec))
    )


@pytest.fixture
def cluster(tmp_path) -> Iterator[SimulatedCluster]:
    made = SimulatedCluster(
        tmp_path,
        2,
        default_replication_factor="2",
        transaction_state_log_replication_factor="2",
        transaction_state_log_num_partitions="3",
    )
    assert made.create_topic("compacted", cleanup_policy="compact").error_code == 0
    assert made.create_topic("plain").error_code == 0
    for tp in (COMPACTED, PLAIN):
        made.loop.run_until(lambda tp=tp: leading(made, tp) is not None)
    yield made
    made.close()


def leading(cluster, tp):
    """The replica that leads, once it knows."""
    found = [b.replicas.get(tp) for b in cluster.brokers if b.serving]
    return next((p for p in found if p is not None and p.leader is not None), None)


def leader_is(cluster, tp, broker: int) -> bool:
    replica = leading(cluster, tp)
    return replica is not None and replica.leader_id == broker


def leader(cluster, tp):
    return cluster[leading(cluster, tp).leader_id]


def send(cluster, tp, records, *, acks: int = -1) -> list:
    request = produce_request(*tp, records, acks=acks)
    return cluster.ask(leader(cluster, tp).id, PRODUCE, 8, request)


def code_of(answers) -> ErrorCode:
    return ErrorCode.of(answers[0].partitions[0].error_code)


def hold(broker) -> None:
    """No background work begins."""
    broker.loop.held = []


def stored_in(replica) -> bytes:
    found = replica.log.reads.read(replica.log.log_start_offset, max_bytes=1 << 24)
    return b"" if found is None else bytes(found.view())


def values_in(replica) -> list[bytes]:
    stored = stored_in(replica)
    return decode_batches(stored).values.to_pylist() if stored else []


def test_other_clients_are_answered_while_a_batch_is_decompressed(cluster):
    hold(leader(cluster, COMPACTED))
    waiting = send(cluster, COMPACTED, batch_of(b"slow"))
    cluster.answer(send(cluster, PLAIN, batch_of(b"fast"), acks=1))
    assert not waiting and values_in(leading(cluster, COMPACTED)) == []
    leader(cluster, COMPACTED).loop.release()
    assert code_of([cluster.answer(waiting)]) is ErrorCode.NONE
    assert values_in(leading(cluster, COMPACTED)) == [b"slow"]


@pytest.mark.parametrize("acks", [-1, 1])
def test_batches_of_one_producer_keep_their_order_however_long_each_takes(cluster, acks):
    broker = leader(cluster, COMPACTED)
    hold(broker)
    sent = [
        send(
            cluster,
            COMPACTED,
            # Every third needs no thread, and waits for those before it all the same.
            batch_of(b"%d" % n, codec="none" if n % 3 == 2 else "zstd", producer=(7, 0, n)),
            acks=acks,
        )
        for n in range(9)
    ]
    cluster.loop.run_for(10)
    assert not any(sent)
    # The threads are done in another order than they began in.
    while broker.loop.held:
        begun, broker.loop.held = broker.loop.held, []
        for work in reversed(begun):
            work_of, broker.loop.held = broker.loop.held, None
            work()
            broker.loop.held = work_of
        cluster.loop.run_for(10)
    broker.loop.release()
    offsets = [cluster.answer(each).partitions[0] for each in sent]
    assert [(each.error_code, each.base_offset) for each in offsets] == [(0, n) for n in range(9)]
    assert values_in(leading(cluster, COMPACTED)) == [b"%d" % n for n in range(9)]


def test_a_request_without_bytes_stops_no_other_behind_it(cluster):
    broker = leader(cluster, COMPACTED)
    hold(broker)
    sent = [send(cluster, COMPACTED, records) for records in (batch_of(b"slow"), memoryview(b""))]
    cluster.loop.run_for(10)
    assert not any(sent)
    broker.loop.release()
    assert code_of([cluster.answer(sent[0])]) is ErrorCode.NONE
    assert code_of([cluster.answer(sent[1])]) is not ErrorCode.NONE
    # One that needs no thread, so that nothing but the append itself looks at the queue.
    plain = send(cluster, COMPACTED, batch_of(b"plain", codec="none"))
    assert code_of([cluster.answer(plain)]) is ErrorCode.NONE
    assert values_in(leading(cluster, COMPACTED)) == [b"slow", b"plain"]


def _move_leadership_away_and_back(cluster) -> None:
    first = leader(cluster, COMPACTED).id
    for target in ([3 - first, first], [first, 3 - first]):
        cluster.answer(cluster.reassign(COMPACTED, target))
        cluster.loop.run_for(1000)
        cluster.answer(cluster.elect_preferred(COMPACTED))
        cluster.loop.run_until(lambda target=target: leader_is(cluster, COMPACTED, target[0]))
    assert leader(cluster, COMPACTED).id == first


def _lose_the_lease(cluster) -> None:
    leader(cluster, COMPACTED).replicas.lease.fence()


def _lose_the_other_replica(cluster) -> None:
    assert alter(cluster, 1, TOPIC, "compacted", ("min.insync.replicas", SET, "2")) == DONE
    leader_id = leader(cluster, COMPACTED).id
    cluster[3 - leader_id].parts.replicas.fetchers.close()
    # It lags only behind something. This way in does not wait for a thread.
    partition = cluster[leader_id].replicas.get(COMPACTED)
    early = partition.append(batch_of(b"early", codec="none"), acks=1)
    assert isinstance(early, AppendResult)
    cluster.loop.run_until(lambda: leading(cluster, COMPACTED).in_sync_count == 1, limit_ms=120_000)


def _delete_the_topic(cluster) -> None:
    cluster.answer(cluster.delete_topic("compacted"))
    cluster.loop.run_for(1000)


def _make_the_topic_anew(cluster) -> None:
    _delete_the_topic(cluster)
    assert cluster.create_topic("compacted", cleanup_policy="compact").error_code == 0
    cluster.loop.run_until(lambda: leading(cluster, COMPACTED) is not None)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (_move_leadership_away_and_back, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_lose_the_lease, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_lose_the_other_replica, ErrorCode.NOT_ENOUGH_REPLICAS),
        (_delete_the_topic, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (_make_the_topic_anew, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_what_has_changed_during_the_wait_refuses_the_append(
    cluster, event: Callable[[SimulatedCluster], None], code
):
    broker = leader(cluster, COMPACTED)
    hold(broker)
    waiting = send(cluster, COMPACTED, batch_of(b"late"))
    cluster.loop.run_for(10)
    event(cluster)
    assert not waiting
    broker.loop.release()
    cluster.loop.run_until(lambda: bool(waiting))
    assert code_of(waiting) is code
    for each in cluster.brokers:
        if each.serving and each.replicas.get(COMPACTED) is not None:
            assert b"late" not in values_in(each.replicas.get(COMPACTED))


def test_a_duplicate_that_waited_with_its_original_is_written_once(cluster):
    broker = leader(cluster, COMPACTED)
    hold(broker)
    sent = [send(cluster, COMPACTED, batch_of(b"one", producer=(7, 0, 0))) for _ in range(2)]
    cluster.loop.run_for(10)
    broker.loop.release()
    assert [cluster.answer(each).partitions[0].base_offset for each in sent] == [0, 0]
    assert values_in(leading(cluster, COMPACTED)) == [b"one"]


def send_in_transaction(cluster, producer: SimulatedProducer, number: int) -> list:
    batch = transactional(
        batch_of(b"%d" % number, producer=(producer.producer_id, producer.epoch, number))
    )
    request = ProduceRequest("p", -1, ANSWER_MS, [ProducePartition(*COMPACTED, batch)])
    return cluster.ask(leader(cluster, COMPACTED).id, PRODUCE, 8, request)


def in_transaction(cluster) -> SimulatedProducer:
    producer = SimulatedProducer(cluster, "p")
    producer.init()
    producer.add(COMPACTED)
    return producer


def test_a_batch_is_refused_when_its_transaction_ended_while_it_was_decompressed(cluster):
    producer = in_transaction(cluster)
    assert code_of([cluster.answer(send_in_transaction(cluster, producer, 0))]) is ErrorCode.NONE
    broker = leader(cluster, COMPACTED)
    hold(broker)
    late = send_in_transaction(cluster, producer, 1)
    cluster.loop.run_for(10)
    producer.end(commits=True)
    replica = leading(cluster, COMPACTED)
    # The batch and its marker.
    cluster.loop.run_until(lambda: replica.log.log_end_offset == 2)
    broker.loop.release()
    cluster.loop.run_until(lambda: bool(late))
    assert code_of(late) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert replica.log.log_end_offset == 2


@pytest.mark.parametrize("number", [0, 1])
def test_a_batch_that_was_decompressed_too_long_is_no_part_of_the_next_transaction(cluster, number):
    """The next one has the same epoch and partition: else an aborted batch would be committed."""
    producer = in_transaction(cluster)
    broker = leader(cluster, COMPACTED)
    if number:
        # Its guard is open, the other batch has to be verified first.
        answer = cluster.answer(send_in_transaction(cluster, producer, 0))
        assert code_of([answer]) is ErrorCode.NONE
    hold(broker)
    late = send_in_transaction(cluster, producer, number)
    cluster.loop.run_for(100)
    producer.end(commits=False)
    cluster.loop.run_for(1_000)
    producer.add(COMPACTED)
    following = send_in_transaction(cluster, producer, number + 1)
    cluster.loop.run_for(1_000)
    broker.loop.release()
    cluster.loop.run_until(lambda: bool(late) and bool(following))
    assert code_of(late) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert b"%d" % number not in values_in(leading(cluster, COMPACTED))


@pytest.mark.parametrize("key", [b"k", None])
def test_settings_that_change_during_the_wait_are_met(cluster, key):
    assert alter(cluster, 1, TOPIC, "plain", ("compression.type", SET, "gzip")) == DONE
    cluster.loop.run_for(1000)
    broker = leader(cluster, PLAIN)
    hold(broker)
    waiting = send(cluster, PLAIN, batch_of(b"x", codec="none", key=key))
    cluster.loop.run_for(10)
    changes = [("compression.type", SET, "lz4"), ("cleanup.policy", SET, "compact")]
    assert alter(cluster, 1, TOPIC, "plain", *changes) == DONE
    cluster.loop.run_for(1000)
    broker.loop.release()
    cluster.loop.run_until(lambda: bool(waiting))
    replica = leading(cluster, PLAIN)
    if key is None:
        assert code_of(waiting) is ErrorCode.INVALID_RECORD and values_in(replica) == []
    else:
        assert code_of(waiting) is ErrorCode.NONE
        assert read_header(stored_in(replica)).compression == Codec.LZ4


def test_an_append_lost_before_the_other_partition_was_ready_is_not_acknowledged(cluster):
    """One request for two partitions: the first is appended at once, and its leader replaced by one
    that never had it, while the second is decompressed."""
    first = leader(cluster, PLAIN).id
    for tp in (PLAIN, COMPACTED):
        cluster.answer(cluster.reassign(tp, [first, 3 - first]))
        cluster.loop.run_for(1000)
        cluster.answer(cluster.elect_preferred(tp))
        cluster.loop.run_until(lambda tp=tp: leader_is(cluster, tp, first))
        cluster.wait_in_sync(tp, 1, 2)
    broker = cluster[first]
    hold(broker)
    rows = [
        ProducePartition(*PLAIN, batch_of(b"lost")),
        ProducePartition(*COMPACTED, batch_of(b"late")),
    ]
    waiting = cluster.ask(first, PRODUCE, 8, ProduceRequest(None, -1, ANSWER_MS, rows))
    replica = leading(cluster, PLAIN)
    cluster.loop.run_until(lambda: replica.log.log_end_offset == 1)
    # As if it had followed another leader, which has another record there, and led again.
    replica.leader = copy.copy(replica.leader)
    broker.loop.release()
    cluster.loop.run_until(lambda: bool(waiting))
    assert not isinstance(waiting[0], TransportError)
    codes = {(row.topic): ErrorCode.of(row.error_code) for row in waiting[0].partitions}
    assert codes["plain"] is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_broker_killed_while_it_compresses_has_acknowledged_nothing_and_doubles_nothing(cluster):
    """An idempotent producer sends again what was not answered."""
    assert alter(cluster, 1, TOPIC, "plain", ("compression.type", SET, "lz4")) == DONE
    cluster.loop.run_for(1000)
    batches = [batch_of(b"%d" % n, codec="gzip", producer=(7, 0, n)) for n in range(12)]
    acknowledged = 0
    for round_number in range(4):
        cluster.wait_in_sync(PLAIN, 1, 2, limit_ms=120_000)
        broker = leader(cluster, PLAIN)
        pending = [send(cluster, PLAIN, batch) for batch in batches[acknowledged:]]
        cluster.loop.run_for(3 + round_number)
        broker.kill(session_ends_at_once=True)
        answered = [p[0] for p in pending if p and not isinstance(p[0], TransportError)]
        assert [a.partitions[0].error_code for a in answered] == [0] * len(answered)
        acknowledged += len(answered)
        cluster.loop.run_until(lambda: leading(cluster, PLAIN) is not None, limit_ms=120_000)
        broker.start()
        # What was acknowledged is with the next leader, in order and once.
        kept = values_in(leading(cluster, PLAIN))
        assert kept == [b"%d" % n for n in range(len(kept))] and len(kept) >= acknowledged
    for batch in batches[acknowledged:]:
        cluster.loop.run_until(lambda: leading(cluster, PLAIN) is not None, limit_ms=120_000)
        assert code_of([cluster.answer(send(cluster, PLAIN, batch))]) is ErrorCode.NONE
    replica = leading(cluster, PLAIN)
    assert values_in(replica) == [b"%d" % n for n in range(12)]
    assert {header.compression for _, header in iter_headers(stored_in(replica))} == {Codec.LZ4}


def test_what_decompresses_to_too_much_is_refused_as_too_large(cluster):
    """A client that can splits the batch, as it does with any that is too large."""
    bomb = batch_of(bytes(65 << 20))
    assert len(bomb) < 10_000
    assert code_of([cluster.answer(send(cluster, COMPACTED, bomb))]) is ErrorCode.MESSAGE_TOO_LARGE
    several = memoryview(bytearray(b"".join([batch_of(bytes(13 << 20))] * 5)))
    refused = cluster.answer(send(cluster, COMPACTED, several)).partitions[0]
    assert ErrorCode.of(refused.error_code) is ErrorCode.MESSAGE_TOO_LARGE
    assert "send smaller batches" in refused.error_message
    assert values_in(leading(cluster, COMPACTED)) == []


def test_an_error_of_our_own_ends_one_append_only(cluster, monkeypatch, caplog):
    monkeypatch.setattr(producer_appends, "prepare", lambda *_, **__: 1 / 0)
    hold(leader(cluster, COMPACTED))
    # The simulated threads pass on what disks and logs raise; this is what a real one passes on.
    broker = leader(cluster, COMPACTED)

    def submit(work, on_done, on_error) -> None:
        try:
            on_done(work())
        except ZeroDivisionError as error:
            on_error(error)

    appends = broker.parts.replicas.producer_appends
    monkeypatch.setattr(appends._threads.background, "submit", submit)
    refused = cluster.answer(send(cluster, COMPACTED, batch_of(b"x")))
    assert code_of([refused]) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "ZeroDivisionError" in caplog.text
    monkeypatch.undo()
    broker.loop.release()
    assert code_of([cluster.answer(send(cluster, COMPACTED, batch_of(b"y")))]) is ErrorCode.NONE


def test_more_than_the_limit_does_not_wait_and_is_to_be_sent_again(cluster):
    batch = batch_of(b"x")
    broker = leader(cluster, COMPACTED)
    # One alone gets half of it.
    broker.parts.replicas.producer_appends._room.most = 4 * (
        len(batch) + producer_appends.WAITER_BYTES
    )
    hold(broker)
    sent = [send(cluster, COMPACTED, batch) for _ in range(3)]
    cluster.loop.run_until(lambda: bool(sent[2]))
    assert code_of(sent[2]) is ErrorCode.NOT_ENOUGH_REPLICAS and not sent[0] and not sent[1]
    broker.loop.release()
    assert [code_of([cluster.answer(each)]) for each in sent[:2]] == [ErrorCode.NONE] * 2
    # The room is given back.
    assert code_of([cluster.answer(send(cluster, COMPACTED, batch))]) is ErrorCode.NONE


def test_with_acks_0_a_refusal_after_the_wait_closes_the_connection(cluster):
    gone = send(cluster, COMPACTED, batch_of(b"x", key=None), acks=0)
    cluster.loop.run_until(lambda: bool(gone))
    assert isinstance(gone[0], TransportError)


def test_a_batch_that_has_the_topics_codec_passes_untouched(cluster):
    assert alter(cluster, 1, TOPIC, "plain", ("compression.type", SET, "zstd")) == DONE
    cluster.loop.run_for(1000)
    hold(leader(cluster, PLAIN))
    sent = batch_of(b"x" * 1000, codec="zstd")
    assert code_of([cluster.answer(send(cluster, PLAIN, sent, acks=1))]) is ErrorCode.NONE
    assert read_header(stored_in(leading(cluster, PLAIN))).crc == read_header(sent).crc
