"""Decides how a fetch names its topics: by their ids, where both sides can and the reader wants
certain topics, else by their names. What it wants of topics with a schema is said only to brokers
that know of schemas.
"""

from collections.abc import Mapping
from uuid import UUID

from storage_engine.client.connection import BrokerConnection
from storage_engine.core.ids import topic_id_to_text
from storage_engine.protocol.apis.describe_schemas import API as DESCRIBE_SCHEMAS
from storage_engine.protocol.apis.fetch import API as BY_ID
from storage_engine.protocol.apis.fetch import BY_NAME, FIRST_WITH_TOPIC_IDS, FetchRequest
from storage_engine.protocol.apis.spec import AnyApi


def knows_ids(connection: BrokerConnection) -> bool:
    """Whether fetches on this connection can name topics by their ids (Kafka 3.1)."""
    return connection.version_for(BY_ID) >= FIRST_WITH_TOPIC_IDS


def named_by_id(
    connection: BrokerConnection, request: FetchRequest, topic_ids: Mapping[str, UUID] | None
) -> tuple[AnyApi, FetchRequest]:
    """The message to send for `request`, which has names. `topic_ids`: of all its topics; None
    where any topic of that name will do."""
    if topic_ids is None or not knows_ids(connection):
        return BY_NAME, request
    return BY_ID, request._replace(
        partitions=[
            wanted._replace(topic=topic_id_to_text(topic_ids[wanted.topic]))
            for wanted in request.partitions
        ]
    )


def check_wants(connection: BrokerConnection, request: FetchRequest) -> None:
    """UnsupportedVersionError where columns are asked for and the broker knows none: it would
    answer with records, which nobody could tell from columns."""
    if any(wanted.want is not None for wanted in request.partitions):
        connection.version_for(DESCRIBE_SCHEMAS)
