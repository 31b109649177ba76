"""AbortMembers: the transactions of failed tasks are aborted."""

from hypothesis import strategies as st

from storage_engine.protocol.apis.abort_members import API, AbortMembersRequest
from storage_engine.protocol.apis.micro_batch_fields import BatchResponse
from storage_engine.tests.protocol.apis.own.round_trips import (
    check_round_trips,
    codes,
    members,
    names,
    runs,
)


def test_messages_come_back() -> None:
    check_round_trips(
        API,
        st.builds(AbortMembersRequest, sink=names, query=names, members=members, write=runs),
        st.builds(BatchResponse, **codes),
    )
