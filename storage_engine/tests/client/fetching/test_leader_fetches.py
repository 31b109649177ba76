"""What a fetch says to a leader: topics by their ids, columns only where they are known."""

from itertools import pairwise
from unittest import mock

import pytest

from storage_engine.client.cluster import Cluster
from storage_engine.client.fetching.fetch_window import FetchWindow
from storage_engine.core.errors import UnsupportedVersionError
from storage_engine.core.ids import TopicPartition, topic_id_to_text
from storage_engine.protocol.apis import describe_schemas
from storage_engine.tests.client.fetching.ranges import read_range
from storage_engine.tests.client.support.batches import append_batches
from storage_engine.tests.client.support.typed_topics import ROWS, reading_of

T0 = TopicPartition("t", 0)


def test_a_broker_without_schemas_is_never_asked_for_columns(typed):
    reading = reading_of(typed, ["id"])
    del typed.api_versions[describe_schemas.API.key]
    with (
        Cluster(typed.bootstrap_servers, deadline_ms=2000) as cluster,
        pytest.raises(UnsupportedVersionError, match="serves DescribeSchemas not at all"),
    ):
        list(read_range(cluster, T0, 0, ROWS, typed_want=reading.want))
    assert typed.count("Fetch") == 0


@pytest.mark.parametrize("newest", [17, 12], ids=["by id", "by name"])
def test_a_topic_is_named_by_its_id_where_the_broker_knows_ids(fake, cluster, newest):
    """To the end of the range, and also by fetches ahead."""
    fake.api_versions[1] = (4, newest)
    fake.add_topic("t", [1])
    append_batches(fake, 30)
    topic_id = fake.topic_ids["t"]
    with mock.patch.object(FetchWindow, "wanted_in_flight", 4):
        chunks = list(read_range(cluster, T0, 0, 90, max_bytes=400, topic_id=topic_id))
    assert [chunks[0].start_offset, chunks[-1].next_offset] == [0, 90]
    assert all(a.next_offset == b.start_offset for a, b in pairwise(chunks))
    named = {
        wanted.topic
        for asked in fake.asked
        if asked.api == "Fetch"
        for wanted in asked.message.partitions
    }
    assert named == {"t" if newest == 12 else topic_id_to_text(topic_id)}
