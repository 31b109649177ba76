"""UpdateFeatures: raises or lowers the levels of features that the whole cluster uses.

Versions: 0 flexible. 1 kind of change (1 raise, 2 lower without loss, 3 lower with loss), and
whether to check only. 2 one error for all updates. Source: KIP-584, KIP-1022.

    UpdateFeaturesResponse(error_code=0, error_message=None, results=[
        UpdateFeaturesResponse.UpdatableFeatureResult(
            feature="transaction.version", error_code=0, error_message=None)])

The attributes are those of Kafka's UpdateFeaturesRequest.json and UpdateFeaturesResponse.json.
"""

from kafka.protocol.admin.cluster import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "UpdateFeaturesRequest", "UpdateFeaturesResponse"]

API = kafka_python_api(57, UpdateFeaturesRequest, UpdateFeaturesResponse)
