"""The throttle time of answers of every kind."""

import pytest

from storage_engine.protocol.apis.api_versions import ApiVersionsResponse
from storage_engine.protocol.apis.list_offsets import ListOffsetsResponse
from storage_engine.protocol.apis.stop_replica import StopReplicaResponse
from storage_engine.protocol.apis.throttle_time import with_throttle_time


@pytest.mark.parametrize("answer", [ListOffsetsResponse([]), ApiVersionsResponse()])
def test_a_copy_of_the_answer_has_the_time(
    answer: ListOffsetsResponse | ApiVersionsResponse,
) -> None:
    assert with_throttle_time(answer, 70).throttle_time_ms == 70
    assert answer.throttle_time_ms == 0


def test_an_answer_without_the_field_is_passed_on() -> None:
    answer = StopReplicaResponse()
    assert with_throttle_time(answer, 70) is answer
