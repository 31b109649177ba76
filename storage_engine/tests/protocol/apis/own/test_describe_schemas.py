"""DescribeSchemas: the schemas of topics."""

from hypothesis import strategies as st

from storage_engine.protocol.apis.describe_schemas import (
    API,
    DescribedSchema,
    DescribeSchemasRequest,
    DescribeSchemasResponse,
)
from storage_engine.tests.protocol.apis.own.round_trips import (
    check_round_trips,
    codes,
    names,
)


def test_messages_come_back() -> None:
    schemas = st.builds(
        DescribedSchema, topic=names, **codes, topic_id=st.uuids(), schema=st.none() | names
    )
    check_round_trips(
        API,
        st.builds(DescribeSchemasRequest, topics=st.lists(names, max_size=3)),
        st.builds(DescribeSchemasResponse, topics=st.lists(schemas, max_size=3)),
    )
