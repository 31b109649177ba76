"""The name under which the sink knows the topic of an origin. It is the topic's id, so that a topic
that was deleted and created again is another source, whose offsets begin anew.

    id:<22 characters>   the topic's id in the cluster that `originServers` names, or the sink's own
    <topic>              with originServers=none, for topics whose id no cluster knows

The two can't be confused: a topic's name has no colon. Source: R-SPARK3.
"""

from collections.abc import Callable
from uuid import UUID

from connector.connections import cluster_for
from connector.errors import ConnectorError, in_one_line
from connector.options.origin_options import OriginOptions
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import topic_id_to_text

_NO_ID = UUID(int=0)


def source_names(options: OriginOptions) -> Callable[[str], str]:
    """A function from a topic to the name of the source. It raises ConnectorError UNKNOWN_ORIGIN
    for a topic that the cluster does not know."""
    connection = options.connection
    if connection is None:
        return str
    cluster = cluster_for(connection)

    def source_of(topic: str) -> str:
        # Each task asks anew. A Python worker outlives topics, and rows of a topic that was created
        # again must not count as rows of the one before.
        with in_one_line():
            cluster.metadata([topic])
            try:
                found = cluster.topic(topic)
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                raise _without_id(topic, connection.bootstrap_servers) from None
        if found.topic_id == _NO_ID:
            raise _without_id(topic, connection.bootstrap_servers)
        return f"id:{topic_id_to_text(found.topic_id)}"

    return source_of


def _without_id(topic: str, servers: str) -> ConnectorError:
    return ConnectorError(
        "UNKNOWN_ORIGIN",
        f"a row comes from the topic '{topic}', whose id is not known on {servers}: set "
        "'originServers' to the cluster it comes from, or to none to go by the topic's name",
    )
