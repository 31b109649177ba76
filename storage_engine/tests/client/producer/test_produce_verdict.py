"""A batch that is refused because of some of its records."""

import pytest

from storage_engine.client.producer.produce_verdict import final_error
from storage_engine.client.producer.producer_errors import RefusedRecordsError
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.protocol.apis.produce import ProducePartitionResponse


@pytest.mark.parametrize("places", [[0], [0, 2]])
def test_only_a_single_wrong_record_is_known_to_have_the_code_of_the_batch(places):
    code = ErrorCode.INVALID_TIMESTAMP
    answer = ProducePartitionResponse(
        "t", 0, code, record_errors=[(place, None) for place in places]
    )
    error = final_error(TopicPartition("t", 0), 100, code, answer)
    assert isinstance(error, RefusedRecordsError)
    assert error.of_record(1) is error
    own = error.of_record(0)
    assert str(own) == f"t-0: {code.meaning}"
    assert own.code is (code if len(places) == 1 else ErrorCode.INVALID_RECORD)
