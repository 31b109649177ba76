"""Where Spark does not find the format by itself: other threads, an environment that is not
activated."""

import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyspark
import pytest

from connector import in_session
from integration_tests.support.cluster_support import create_topic
from integration_tests.support.spark_support import QUERY_TIMEOUT_S, consume, produce
from integration_tests.support.spark_versions import python_path
from storage_engine.tests.sampling import in_full

ROOT = Path(__file__).parents[2]
PROPERTY = "headrace.test"


def _write(frame, servers, **options):
    writer = frame.write.format("headrace").mode("append")
    writer.option("kafka.bootstrap.servers", servers).options(**options).save()


def _values(servers, topic):
    return sorted((each.value() or b"").decode() for each in consume(servers, topic))


def test_writes_from_a_pool_of_threads_find_the_format_and_leave_the_threads_as_they_were(
    spark, spark_cluster, servers, topic
):
    create_topic(spark_cluster, topic, partitions=2)
    context = spark.sparkContext

    def write(number: int) -> str | None:
        frame = spark.range(number, number + 1).selectExpr("cast(id as string) value")
        _write(frame, servers, topic=topic)
        return context.getLocalProperty(PROPERTY)

    def left() -> tuple[bool, str | None]:
        sessions = spark._jvm.org.apache.spark.sql.classic.SparkSession
        return sessions.getActiveSession().isDefined(), context.getLocalProperty(PROPERTY)

    context.setLocalProperty(PROPERTY, "of the caller")
    try:
        function = in_session(spark, write)
    finally:
        context.setLocalProperty(PROPERTY, None)
    with ThreadPoolExecutor(1) as pool:
        # What the helper is for: without it Spark does not find the format.
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            pool.submit(write, 7).result()
        assert pool.submit(function, 0).result() == "of the caller"
        assert pool.submit(left).result() == (False, None)
    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(function, range(1, 4))) == ["of the caller"] * 3
    assert _values(servers, topic) == ["0", "1", "2", "3"]


def test_foreach_batch_and_threads_within_it_write_for_its_query(
    spark, spark_cluster, servers, topic, tmp_path
):
    """Numbers belong to the query: another one is refused, instead of its rows being dropped."""
    source = f"{topic}-source"
    for name in (topic, source):
        create_topic(spark_cluster, name, partitions=1)
    produce(servers, source, [{"value": b"%d" % number} for number in range(10)])
    refused: list[str] = []

    def write_also_in_a_thread(frame, number):
        def write(part):
            rows = frame.where(f"offset % 2 = {part}").select("value")
            named = {"sinkId": topic, "sinkPart": str(part), "batchId": str(number)}
            _write(rows, servers, topic=topic, **named)

        with ThreadPoolExecutor() as pool:
            thread = pool.submit(in_session(frame.sparkSession, write), 0)
            for end in (lambda: write(1), thread.result):
                try:
                    end()
                except Exception as error:  # noqa: BLE001 - counted by its text
                    refused.append(str(error))

    def run(checkpoint):
        reader = spark.readStream.format("headrace").option("kafka.bootstrap.servers", servers)
        rows = reader.options(subscribe=source, startingOffsets="earliest").load()
        writer = rows.writeStream.foreachBatch(write_also_in_a_thread).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / checkpoint)).start()
        assert query.awaitTermination(QUERY_TIMEOUT_S)

    run("first")
    assert refused == []
    assert _values(servers, topic) == [str(number) for number in range(10)]
    run("second")
    assert len(refused) == 2
    assert all("[BATCH_ID_TAKEN] " in each for each in refused)
    assert len(consume(servers, topic)) == 10


JOB = textwrap.dedent(
    """
    import sys
    from pyspark.sql import SparkSession

    servers, topic, order = sys.argv[1:]
    if order == "import":
        import connector
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    reader = spark.read.format("headrace").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic)
    if order == "register":
        try:
            reader.load()
        except Exception as error:
            print("DATA_SOURCE_NOT_FOUND" in str(error))
        import connector
        connector.register(spark)
    print([bytes(row.value) for row in reader.load().select("value").collect()])
    print(spark.version)
    spark.stop()
    """
)


def _run_job(folder, *arguments):
    """In an environment that is not activated: `python3` of the PATH has neither our package nor
    those that it needs."""
    path = folder / "path"
    path.mkdir()
    python = path / "python3"
    python.write_text(
        f"""#!/bin/sh
        others=$(printf %s "$PYTHONPATH" | tr : '\\n' | grep -vxF '{ROOT}' | paste -sd:)
        PYTHONPATH="$others" exec '{sys.executable}' -S -P "$@"
        """
    )
    python.chmod(0o755)
    job = folder / "job.py"
    job.write_text(JOB)
    environment = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("PYSPARK_", "PYTHON_WORKER_"))
    }
    environment |= {"PATH": f"{path}:/usr/bin:/bin", "PYTHONPATH": python_path(ROOT)}
    done = subprocess.run(
        [sys.executable, job, *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines(), done.stderr


@pytest.fixture
def one_record(spark_cluster, servers, topic):
    create_topic(spark_cluster, topic, partitions=1)
    produce(servers, topic, [{"value": b"v"}])
    return topic


@in_full
def test_an_import_before_the_session_is_enough_where_the_environment_is_not_activated(
    servers, one_record, tmp_path
):
    printed, _ = _run_job(tmp_path, servers, one_record, "import")
    assert printed == ["[b'v']", pyspark.__version__]


@in_full
def test_an_import_after_the_session_says_what_to_do_and_registering_helps(
    servers, one_record, tmp_path
):
    printed, said = _run_job(tmp_path, servers, one_record, "register")
    assert printed == ["True", "[b'v']", pyspark.__version__]
    assert "call connector.register(spark), or import connector before the session" in said
