"""UpdateFeatures: what a cluster's features are at is confirmed, and everything else refused.

All updates of a request are made, or none. Source: KIP-584.
"""

from storage_engine.broker.handlers.api_call import ApiCall
from storage_engine.broker.requests.long_work import Steps
from storage_engine.core.errors import KafkaError
from storage_engine.core.features import check_update
from storage_engine.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

_Result = UpdateFeaturesResponse.UpdatableFeatureResult


def handle(call: ApiCall[UpdateFeaturesResponse], request: UpdateFeaturesRequest) -> Steps:
    results = []
    first: KafkaError | None = None
    for update in request.feature_updates:
        code, text = 0, None
        try:
            check_update(update.feature, update.max_version_level)
        except KafkaError as failure:
            code, text = int(failure.code), str(failure)
            first = first or failure.as_outcome()
        results.append(_Result(feature=update.feature, error_code=code, error_message=text))
        yield None
    # From version 2 on the answer has no results.
    whole = first if call.version >= 2 else None
    call.respond(
        UpdateFeaturesResponse(
            error_code=0 if whole is None else int(whole.code),
            error_message=None if whole is None else str(whole),
            results=results,
        )
    )
