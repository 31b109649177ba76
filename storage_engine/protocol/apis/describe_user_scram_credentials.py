"""DescribeUserScramCredentials: which users have SCRAM credentials, never the credentials
(KIP-554).

    request.users: None for all, or UserName(name)
    Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    results: user, error_code, error_message, credential_infos (mechanism, iterations)

The attributes are those of Kafka's DescribeUserScramCredentialsRequest.json and its response's.
"""

from kafka.protocol.admin.users import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "DescribeUserScramCredentialsRequest", "DescribeUserScramCredentialsResponse"]

API = kafka_python_api(
    50, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse
)
