"""ListConfigResources: the topics and brokers of the cluster, which have settings, and the brokers
once more as what has loggers. Source: KIP-1142.
"""

from collections.abc import Iterable

from storage_engine.broker.cluster.metadata_cache import MetadataCache
from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.broker.settings.config_store import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
)
from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32
"""Settings of client metrics and groups do not exist here: none are listed."""

KNOWN = (
    TOPIC_RESOURCE,
    BROKER_RESOURCE,
    BROKER_LOGGER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
)

FIRST_WITH_TYPES = 1


def handle(
    metadata: MetadataCache,
    call: ApiCall[ListConfigResourcesResponse],
    request: ListConfigResourcesRequest,
) -> Steps:
    if call.version >= FIRST_WITH_TYPES:
        wanted = set(request.resource_types) or set(KNOWN)
    else:
        wanted = {CLIENT_METRICS_RESOURCE}
    if not wanted <= set(KNOWN):
        code = int(ErrorCode.UNSUPPORTED_VERSION)
        call.respond(ListConfigResourcesResponse(error_code=code, config_resources=[]))
        return
    brokers = [str(broker_id) for broker_id in sorted(metadata.brokers)]
    names: dict[int, Iterable[str]] = {
        TOPIC_RESOURCE: sorted(metadata.topics()) if TOPIC_RESOURCE in wanted else (),
        BROKER_RESOURCE: brokers,
        BROKER_LOGGER_RESOURCE: brokers,
    }
    rows = []
    for kind in sorted(wanted):
        for name in names.get(kind, ()):
            rows.append(
                ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            )
            yield None
    call.respond(ListConfigResourcesResponse(error_code=0, config_resources=rows))
