"""On a real broker `Admin` does what it says, and says what it can't do; with asyncio
all clients do what they do without, also when what waits for them is cancelled at any moment."""

import asyncio
import random
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest
from kafka import TopicPartition as KafkaPartition
from kafka.admin import KafkaAdminClient

from integration_tests.support.cluster_support import running_cluster, wait_until
from storage_engine.client import (
    ALL_BROKERS,
    EARLIEST,
    LATEST,
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    ConfigError,
    ConfigSource,
    Consumer,
    ErrorCode,
    HeadraceError,
    KafkaError,
    NewTopic,
    Producer,
    TopicPartition,
)
from storage_engine.tests.sampling import SEED
from storage_engine.tools.local.local_cluster import LocalCluster

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[LocalCluster]:
    settings = (
        ("group.initial.rebalance.delay.ms", "0"),
        ("transaction.state.log.num.partitions", "3"),
    )
    with running_cluster(tmp_path_factory.mktemp("c"), brokers=1, settings=settings) as made:
        yield made


@pytest.fixture
def admin(cluster, unknown_topics_are_told_soon) -> Iterator[Admin]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as made:
        yield made


def filled(
    cluster: LocalCluster, admin: Admin, topic: str, records: int = 10, **settings: object
) -> TopicPartition:
    """A topic of one partition; record n is at n seconds."""
    admin.create_topics([NewTopic(name=topic, partitions=1, configs={"retention.ms": "-1"})])
    config = {key.replace("_", "."): value for key, value in settings.items()}
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, **config}) as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number, timestamp_ms=1000 * number)
    return TopicPartition(topic, 0)


def refused(code: ErrorCode, call, *arguments, **named) -> str:
    with pytest.raises(KafkaError) as raised:
        call(*arguments, **named)
    assert raised.value.code is code
    return str(raised.value)


def test_topics_are_made_described_changed_and_deleted(admin):
    new = [
        NewTopic(name="one", partitions=2, configs={"segment.ms": "5000"}),
        NewTopic(name="two", partitions=1),
    ]
    admin.create_topics(new, validate_only=True)
    assert not {"one", "two"} & set(admin.list_topics())
    admin.create_topics(new)
    assert {"one", "two"} <= set(admin.list_topics())
    assert "two" in refused(ErrorCode.TOPIC_ALREADY_EXISTS, admin.create_topics, new[1:])
    admin.create_partitions({"one": 3})
    described = admin.describe_topics(["one", "two"])
    assert [len(each.partitions) for each in described.values()] == [3, 1]
    assert [each.leader for each in described["one"].partitions.values()] == [1, 1, 1]
    entry = admin.describe_topic_configs("one")["segment.ms"]
    assert (entry.value, entry.source) == ("5000", ConfigSource.TOPIC)
    admin.alter_topic_configs("one", {"retention.ms": "7000"}, remove=["segment.ms"])
    entries = admin.describe_topic_configs("one")
    assert entries["retention.ms"].value == "7000"
    assert entries["segment.ms"].source is ConfigSource.DEFAULT
    wrong = {"retention.ms": "8000", "segment.bytes": "few"}
    assert "segment.bytes" in refused(
        ErrorCode.INVALID_CONFIG, admin.alter_topic_configs, "one", wrong
    )
    assert admin.describe_topic_configs("one")["retention.ms"].value == "7000"
    admin.delete_topics(["one", "two"])
    assert not {"one", "two"} & set(admin.list_topics())
    refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, admin.describe_topics, ["one"])
    with pytest.raises(ConfigError, match=r"give \['two'\]"):
        admin.delete_topics("two")


def test_brokers_are_described_and_set_at_run_time(admin):
    cluster = admin.describe_cluster()
    assert [broker.broker_id for broker in cluster.brokers] == [1]
    assert cluster.controller_id == 1
    assert cluster.cluster_id
    for entity, source in ((1, ConfigSource.BROKER), (ALL_BROKERS, ConfigSource.ALL_BROKERS)):
        admin.alter_broker_configs(entity, {"message.max.bytes": "2000000"})
        entry = admin.describe_broker_configs(1)["message.max.bytes"]
        assert (entry.value, entry.source) == ("2000000", source)
        admin.alter_broker_configs(entity, {}, remove=["message.max.bytes"])
    wrong = {"message.max.bytes": "-1"}
    text = refused(ErrorCode.INVALID_CONFIG, admin.alter_broker_configs, 1, wrong)
    assert "topic" not in text


def test_records_have_offsets_at_times_lie_in_folders_and_are_deleted(cluster, admin):
    tp = filled(cluster, admin, "kept")

    def at(time_ms: int) -> int | None:
        return admin.list_offsets({tp: time_ms})[tp]

    assert [at(EARLIEST), at(3500), at(LATEST), at(99_000)] == [0, 4, 10, None]
    (folder,) = admin.describe_log_dirs()[1]
    (log,) = [log for log in folder.replicas if log.tp == tp]
    assert folder.error is ErrorCode.NONE
    assert log.size_bytes > 10
    assert admin.delete_records({tp: 6}) == {tp: 6}
    assert at(EARLIEST) == 6
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, admin.delete_records, {tp: 11})


def test_groups_are_described_moved_and_deleted(cluster, admin):
    tp = filled(cluster, admin, "read")
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "readers"}
    with Consumer({**config, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["read"])
        wait_until(consumer.poll, "records")
        consumer.commit({tp: 7})
        described = admin.describe_group("readers")
        (member,) = described.members
        (partition,) = described.partitions
        assert (described.state, described.lag, member.partitions) == ("Stable", 3, (tp,))
        assert (partition.offset, partition.end_offset, partition.member_id) == (
            7,
            10,
            member.member_id,
        )
        for call in (
            lambda: admin.alter_group_offsets("readers", {tp: 1}),
            lambda: admin.reset_group_offsets("readers", at_ms=EARLIEST),
            lambda: admin.delete_group("readers"),
        ):
            assert "'readers' has" in refused(ErrorCode.NON_EMPTY_GROUP, call)
        refused(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, admin.delete_group_offsets, "readers", [tp])
    admin.alter_group_offsets("readers", {tp: 2})
    (reset,) = admin.reset_group_offsets("readers", shift_by=3, dry_run=True)
    assert (reset.before, reset.after) == (2, 5)
    assert admin.group_offsets("readers") == {tp: 2}
    admin.reset_group_offsets("readers", at_ms=8500)
    assert admin.group_offsets("readers") == {tp: 9}
    with pytest.raises(ConfigError, match="one of at_ms, offset and shift_by"):
        admin.reset_group_offsets("readers", offset=1, shift_by=1)
    with pytest.raises(ConfigError, match="has no committed offset for read-0"):
        admin.reset_group_offsets("new", topics=["read"], shift_by=1)
    admin.delete_group_offsets("readers", [tp])
    assert admin.group_offsets("readers") == {}
    with pytest.raises(ConfigError, match="'new' has no committed offsets; give the topics"):
        admin.reset_group_offsets("new", offset=1)
    admin.reset_group_offsets("new", topics=["read"], offset=99)
    assert [each.group for each in admin.list_groups() if each.group == "new"] == ["new"]
    assert admin.describe_group("new").lag == 0
    admin.delete_group("new")
    refused(ErrorCode.GROUP_ID_NOT_FOUND, admin.delete_group, "new")
    assert "'new'" in refused(ErrorCode.GROUP_ID_NOT_FOUND, admin.describe_group, "new")


def test_a_transaction_is_seen_while_it_is_open(cluster, admin):
    tp = filled(cluster, admin, "written", records=0)
    refused(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, admin.describe_transaction, "writer")
    config = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "writer"}
    began_ms = time.time_ns() // 1_000_000
    with Producer(config) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("written", b"x").result(60)
        described = admin.describe_transaction("writer")
        assert (described.state, described.partitions) == ("Ongoing", (tp,))
        assert described.started_ms is not None
        assert abs(described.started_ms - began_ms) < 600_000
        (listed,) = admin.list_transactions(states=["Ongoing"])
        assert (listed.transactional_id, listed.producer_id) == ("writer", described.producer_id)
        assert admin.list_transactions(open_for_ms=3_600_000) == []
        ends = admin.list_offsets({tp: LATEST}, isolation="read_committed")
        assert (ends, admin.list_offsets({tp: LATEST})) == ({tp: 0}, {tp: 1})
        ((active,),) = admin.describe_producers([tp]).values()
        assert (active.producer_id, active.epoch) == (
            described.producer_id,
            described.producer_epoch,
        )
        assert (active.last_sequence, active.transaction_start_offset) == (0, 0)
        theirs = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        (told,) = theirs.describe_producers([KafkaPartition(*tp)]).values()
        theirs.close()
        assert [each.producer_id for each in told.active_producers] == [described.producer_id]
        producer.commit_transaction()
        wait_until(
            lambda: admin.describe_transaction("writer").state == "CompleteCommit", "committed"
        )
    assert admin.describe_transaction("writer").partitions == ()
    ((active,),) = admin.describe_producers([tp]).values()
    assert (active.coordinator_epoch, active.transaction_start_offset) == (0, None)
    nowhere = [TopicPartition("written", 7)]
    refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, admin.describe_producers, nowhere)
    assert OFFSETS not in admin.list_topics()
    assert TRANSACTIONS in admin.list_topics(internal=True)


def test_a_wrong_setting_and_a_closed_admin_are_told(admin):
    with pytest.raises(ConfigError, match=r"did you mean 'bootstrap.servers'"):
        Admin({"bootstrap.server": "x:1"})
    with pytest.raises(ConfigError, match=r"bootstrap.servers is missing"):
        Admin({})
    admin.close()
    with pytest.raises(HeadraceError, match="the admin is closed"):
        admin.list_topics()


# --- asyncio ---


def test_with_asyncio_records_are_sent_read_and_committed(cluster, admin):
    servers = {"bootstrap.servers": cluster.bootstrap_servers}
    group = {**servers, "group.id": "tasks", "auto.offset.reset": "earliest"}
    tasks, each = 4, 500

    async def send(producer: AsyncProducer, task: int) -> list[int]:
        sent = [await producer.send("async", b"%d %d" % (task, n)) for n in range(each)]
        return [(await one).offset for one in sent]

    async def work() -> None:
        async with AsyncAdmin(servers) as other:
            await other.create_topics([NewTopic(name="async", partitions=1)])
        async with AsyncProducer(servers) as producer:
            offsets = await asyncio.gather(*(send(producer, task) for task in range(tasks)))
            assert all(each == sorted(each) for each in offsets)
            table = await producer.send_table("async", pa.table({"value": ["x"] * 10}))
            await producer.flush()
            assert table.done()
        async with AsyncConsumer({**group, "enable.auto.commit": False}) as consumer:
            await consumer.subscribe(["async"])
            seen = []
            async for record in consumer:
                seen.append(record.value)
                if len(seen) == 700:
                    await consumer.commit()
                if len(seen) == tasks * each:
                    break
            assert len((await consumer.poll_table(60_000))["value"]) == 10
        for task in range(tasks):
            own = [value for value in seen if value.startswith(b"%d " % task)]
            assert own == [b"%d %d" % (task, n) for n in range(each)]

    asyncio.run(work())
    assert admin.group_offsets("tasks") == {TopicPartition("async", 0): 700}


@pytest.mark.parametrize("seed", range(SEED, SEED + 2))
def test_a_consumer_that_is_cancelled_at_any_moment_skips_and_repeats_nothing(cluster, admin, seed):
    tp = filled(cluster, admin, f"cancelled-{seed}", records=400, batch_size=1_000)
    chance = random.Random(seed)

    async def work() -> list[int]:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        config = {**servers, "group.id": tp.topic, "fetch.max.bytes": 1}
        seen: list[int] = []

        async def one_record() -> None:
            seen.append((await anext(consumer)).offset)

        async def rows() -> None:
            seen.extend(row.offset for row in await consumer.poll(max_records=3))

        async def columns() -> None:
            seen.extend((await consumer.poll_table())["offset"].to_pylist())

        cancelled = 0
        async with AsyncConsumer({**config, "auto.offset.reset": "earliest"}) as consumer:
            await consumer.assign([tp])
            # The last part at once, so that the table has something to take.
            while len(seen) < 400:
                kinds = [one_record, rows] + [columns] * (len(seen) > 300)
                task = asyncio.create_task(chance.choice(kinds)())
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                await asyncio.wait({task}, timeout=chance.choice((0, 0.001, 0.003, None)))
                task.cancel()
                try:
                    await task
                except asyncio.CancelledError:
                    cancelled += 1
                if chance.random() < 0.05 and seen:
                    await consumer.commit()
                    assert await consumer.committed([tp]) == {tp: seen[-1] + 1}
        assert cancelled > 10
        return seen

    assert asyncio.run(work()) == list(range(400))


def test_with_asyncio_what_was_read_is_written_in_one_transaction(cluster, admin):
    tp = filled(cluster, admin, "source")
    admin.create_topics([NewTopic(name="target", partitions=1)])
    servers = {"bootstrap.servers": cluster.bootstrap_servers}

    async def work() -> None:
        async with (
            AsyncProducer({**servers, "transactional.id": "copier"}) as producer,
            AsyncConsumer(
                {**servers, "group.id": "copiers", "enable.auto.commit": False}
            ) as consumer,
        ):
            await producer.init_transactions()
            await consumer.assign([tp])
            await consumer.seek_to_beginning()
            for ends in (producer.abort_transaction, producer.commit_transaction):
                await producer.begin_transaction()
                for record in await consumer.poll(60_000):
                    await producer.send("target", record.value)
                positions = {tp: await consumer.position(tp)}
                await producer.send_offsets_to_transaction(positions, consumer.group_metadata())
                await ends()
                await consumer.seek(tp, 0)

    asyncio.run(work())
    assert admin.group_offsets("copiers") == {tp: 10}
    with Consumer({**servers, "isolation.level": "read_committed"}) as consumer:
        target = TopicPartition("target", 0)
        consumer.assign([target])
        consumer.seek(target, 0)
        rows = wait_until(consumer.poll, "the copies")
    assert [row.value for row in rows] == [b"%d" % number for number in range(10)]
