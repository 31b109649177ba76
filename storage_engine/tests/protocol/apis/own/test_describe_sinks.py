"""DescribeSinks: the last commits of sinks, and their open transactions."""

from hypothesis import strategies as st

from storage_engine.protocol.apis.describe_sinks import (
    API,
    DescribeSinksRequest,
    DescribeSinksResponse,
    OpenMember,
    SinkQuery,
)
from storage_engine.tests.protocol.apis.own.round_trips import (
    check_round_trips,
    codes,
    committed,
    epochs,
    ids,
    names,
    origins,
    positive,
)


def test_messages_come_back() -> None:
    open_members = st.builds(
        OpenMember,
        producer_id=ids,
        epoch=epochs,
        batch=ids,
        timeout_ms=positive,
        idle_ms=ids,
        aborting=st.booleans(),
        partitions=origins.map(sorted),
    )
    queries = st.builds(
        SinkQuery,
        sink=names,
        query=names,
        **committed,
        last=ids,
        markers=positive,
        origins=positive,
        members_total=positive,
        members=st.lists(open_members, max_size=2),
    )
    check_round_trips(
        API,
        st.builds(
            DescribeSinksRequest,
            sinks=st.lists(names, max_size=3),
            producers=st.lists(ids, max_size=3),
            most=positive,
        ),
        st.builds(
            DescribeSinksResponse,
            **codes,
            more=st.booleans(),
            queries=st.lists(queries, max_size=3),
        ),
    )
