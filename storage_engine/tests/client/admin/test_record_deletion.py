"""Records are deleted at each partition's leader, and a refusal says why."""

import pytest

from storage_engine.client.admin.record_deletion import ALL, delete_records
from storage_engine.core.errors import ErrorCode, KafkaError, OffsetOutOfRangeError
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.messages.delete_records import DeleteRecordsResponse

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
Row = Topic.DeleteRecordsPartitionResult


def answering(fake, code=ErrorCode.NONE):
    """Brokers that delete up to 9 where ALL is asked for, and note who was asked for what."""
    fake.add_topic("t", [1, 2])
    asked = []

    def answer(broker_id, _api, message):
        (topic,) = message.topics
        rows = []
        for row in topic.partitions:
            asked.append((broker_id, row.partition_index, row.offset))
            low = 9 if row.offset == ALL else row.offset
            rows.append(
                Row(partition_index=row.partition_index, low_watermark=low, error_code=int(code))
            )
        return DeleteRecordsResponse(topics=[Topic(name="t", partitions=rows)])

    fake.admin = answer
    return asked


def test_each_leader_deletes_its_partitions_and_tells_where_they_begin(fake, cluster):
    asked = answering(fake)
    assert delete_records(cluster, {T1: ALL, T0: 4}) == {T1: 9, T0: 4}
    assert sorted(asked) == [(1, 0, 4), (2, 1, ALL)]


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (
            ErrorCode.OFFSET_OUT_OF_RANGE,
            OffsetOutOfRangeError,
            "t-0 has no committed records up to offset 4: nothing is deleted",
        ),
        (ErrorCode.POLICY_VIOLATION, KafkaError, "t-0 .*cleanup.policy is without 'delete'"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, KafkaError, "records of t-0: not allowed"),
    ],
)
def test_a_refusal_names_the_partition_and_the_reason(fake, cluster, code, kind, text):
    answering(fake, code)
    with pytest.raises(kind, match=text) as raised:
        delete_records(cluster, {T0: 4})
    assert raised.value.code is code
