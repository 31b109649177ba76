"""A Spark query copies rows exactly once into a cluster that is restored: with a new checkpoint it
goes on where the sink was at the moment of the backup, and each row is there once."""

import shutil

from integration_tests.backup.load import committed_values
from integration_tests.support.cluster_support import create_topic, running_cluster
from integration_tests.support.command_line import succeed_here
from storage_engine.client import Producer
from storage_engine.tools.local.local_cluster import LocalCluster

SOURCE, TARGET = "spark-source", "spark-target"


def write_numbers(servers: str, numbers) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        for number in numbers:
            producer.send(SOURCE, b"%d" % number, partition=number % 2)


def run_query(spark, servers: str, checkpoint) -> None:
    """Copy all that there is."""
    (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", SOURCE)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("value", "topic AS t", "partition AS p", "offset AS o")
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", TARGET)
        .option("sinkId", "copy")
        .option("idempotentKey", "t,p,o")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


def copied(servers: str) -> list[int]:
    seen = committed_values(servers, TARGET, 2)
    return sorted(int(value) for values in seen.values() for value in values)


def test_a_copy_goes_on_with_a_new_checkpoint_and_each_row_is_there_once(spark, tmp_path):
    place = tmp_path / "place"
    with running_cluster(tmp_path / "original", brokers=1) as original:
        servers = original.bootstrap_servers
        for topic in (SOURCE, TARGET):
            create_topic(original, topic, partitions=2, replication_factor=1)
        write_numbers(servers, range(10))
        run_query(spark, servers, tmp_path / "checkpoint")
        # In the backup, and not copied.
        write_numbers(servers, range(10, 20))
        succeed_here("backup", "--to", place, "--dir", original.directory)
        # Copied, and not in the backup.
        write_numbers(servers, range(20, 30))
        run_query(spark, servers, tmp_path / "checkpoint")
        original.down()
    shutil.rmtree(tmp_path / "original")
    succeed_here("restore", "--from", place, "--dir", tmp_path / "restored")
    with LocalCluster.running(tmp_path / "restored") as restored:
        servers = restored.bootstrap_servers
        assert copied(servers) == list(range(10))
        write_numbers(servers, range(100, 110))
        run_query(spark, servers, tmp_path / "new-checkpoint")
        assert copied(servers) == [*range(20), *range(100, 110)]
