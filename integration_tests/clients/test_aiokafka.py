"""aiokafka, unmodified: kafka-python's sister for asyncio, with a protocol of its own."""

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from integration_tests.support.cluster_support import create_topic, running_cluster
from storage_engine.tools.local.local_cluster import LocalCluster

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
RECORDS = 200
LIMIT_S = 120.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = (("group.initial.rebalance.delay.ms", "200"),)
    folder = tmp_path_factory.mktemp("cluster")
    with running_cluster(folder, brokers=1, settings=settings) as made:
        yield made


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, LIMIT_S))


async def read(consumer: AIOKafkaConsumer, count: int) -> list[bytes]:
    """Values, until there are so many."""
    values: list[bytes] = []
    while len(values) < count:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            values += [record.value for record in records]
    return values


def test_aiokafka_writes_every_compression_and_reads_it_in_a_group(cluster):
    create_topic(cluster, "codecs", partitions=3, replication_factor=1)
    servers = cluster.bootstrap_servers
    expected = [f"{codec} {number}".encode() for codec in CODECS for number in range(RECORDS)]

    async def work() -> None:
        for codec in CODECS:
            async with AIOKafkaProducer(
                bootstrap_servers=servers, compression_type=codec, enable_idempotence=True
            ) as producer:
                sent = [
                    await producer.send("codecs", f"{codec} {number}".encode(), key=b"%d" % number)
                    for number in range(RECORDS)
                ]
                await asyncio.gather(*sent)
        async with AIOKafkaConsumer(
            "codecs",
            bootstrap_servers=servers,
            group_id="aiokafka",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            assert sorted(await read(consumer, len(expected))) == sorted(expected)
            await consumer.commit()
            committed = [await consumer.committed(each) for each in consumer.assignment()]
            assert sum(committed) == len(expected)

    run(work())


def test_aiokafka_consumes_transforms_and_produces_in_transactions(cluster):
    create_topic(cluster, "from", replication_factor=1)
    create_topic(cluster, "to", replication_factor=1)
    servers = cluster.bootstrap_servers

    async def copy(consumer: AIOKafkaConsumer, producer: AIOKafkaProducer, *, fails: bool) -> None:
        async with producer.transaction():
            for value in await read(consumer, RECORDS):
                await producer.send("to", value)
            (partition,) = consumer.assignment()
            positions = {partition: await consumer.position(partition)}
            await producer.send_offsets_to_transaction(positions, "copies")
            if fails:
                await producer.flush()
                raise InterruptedError

    async def work() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
            for number in range(RECORDS):
                await producer.send("from", b"%d" % number)
        async with (
            AIOKafkaConsumer(
                "from",
                bootstrap_servers=servers,
                group_id="copies",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer,
            AIOKafkaProducer(bootstrap_servers=servers, transactional_id="copies") as producer,
        ):
            with pytest.raises(InterruptedError):
                await copy(consumer, producer, fails=True)
            (partition,) = consumer.assignment()
            assert await consumer.committed(partition) is None
            consumer.seek(partition, 0)
            await copy(consumer, producer, fails=False)
            # A commit is answered once it is decided, before its markers are written, and aiokafka
            # has no version of OffsetFetch that waits for them (KIP-447).
            for _ in range(600):
                committed = await consumer.committed(partition)
                if committed is not None:
                    break
                await asyncio.sleep(0.1)
            assert committed == RECORDS
        async with AIOKafkaConsumer(
            "to",
            bootstrap_servers=servers,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as consumer:
            assert await read(consumer, RECORDS) == [b"%d" % number for number in range(RECORDS)]
            assert await consumer.getmany(timeout_ms=500) == {}

    run(work())


def test_aiokafka_administers_topics_and_settings(cluster):
    async def work() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
        await client.start()
        try:
            await client.create_topics([NewTopic("administered", 2, 1)])
            await client.create_partitions({"administered": NewPartitions(3)})
            (topic,) = await client.describe_topics(["administered"])
            assert [each["partition"] for each in topic["partitions"]] == [0, 1, 2]
            resource = ConfigResource(
                ConfigResourceType.TOPIC, "administered", {"retention.ms": "777"}
            )
            await client.alter_configs([resource])
            (answer,) = await client.describe_configs([resource])
            ((code, _, _, name, entries),) = answer.resources
            assert (code, name) == (0, "administered")
            assert [entry[:2] for entry in entries] == [("retention.ms", "777")]
            await client.delete_topics(["administered"])
            assert "administered" not in await client.list_topics()
        finally:
            await client.close()

    run(work())
