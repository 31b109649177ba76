"""A streaming query goes on from a checkpoint that a release wrote, source
and sink, and every record is copied once. Source: R-SPARK2."""

import pytest

from connector.spark_version import limits_micro_batches
from integration_tests.kept_data.kept_cluster import RELEASES, running_kept_cluster
from integration_tests.kept_data.make import (
    ORDERS,
    PER_MICRO_BATCH,
    copy_orders,
    fill_orders,
)
from integration_tests.support.spark_support import consume, per_batch

MORE = 15


@pytest.mark.parametrize("release", RELEASES)
def test_a_query_goes_on_from_its_checkpoint_and_copies_each_record_once(release, spark, tmp_path):
    # The last micro-batch of the checkpoint is committed by the sink and not by Spark: a replay.
    checkpoint = tmp_path / "checkpoint"
    with running_kept_cluster(release, tmp_path) as (cluster, kept):
        servers = cluster.bootstrap_servers
        fill_orders(servers, range(ORDERS, ORDERS + MORE))
        # Spark before 4.2 ends after the micro-batch that it repeats.
        for _ in range(1 if limits_micro_batches() else 2):
            copy_orders(spark, servers, checkpoint, limits=per_batch(PER_MICRO_BATCH))
        rows = consume(servers, "copies")
    values = [row.value().decode() for row in rows]
    assert sorted(values) == sorted(f"order {n}" for n in range(ORDERS + MORE))
    before = {
        (partition, offset, value)
        for partition in (0, 1)
        for offset, _, value, _ in kept[f"copies-{partition}"]["committed"]
    }
    assert before <= {(row.partition(), row.offset(), row.value().decode()) for row in rows}
    commits = [path.name for path in (checkpoint / "commits").iterdir() if path.name.isdigit()]
    assert max(map(int, commits)) > ORDERS // PER_MICRO_BATCH - 1
