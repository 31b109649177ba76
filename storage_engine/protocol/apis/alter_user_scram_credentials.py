"""AlterUserScramCredentials: makes, changes and removes users that log in by SCRAM (KIP-554).

    request.deletions: name, mechanism
    request.upsertions: name, mechanism, iterations, salt, salted_password
    AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult: user, error_code,
        error_message

The salted password is as secret as the password: a message is never logged. The attributes are
those of Kafka's AlterUserScramCredentialsRequest.json and its response's.
"""

from kafka.protocol.admin.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

from storage_engine.protocol.apis.kafka_python import kafka_python_api

__all__ = ["API", "AlterUserScramCredentialsRequest", "AlterUserScramCredentialsResponse"]

# librdkafka appends a byte.
API = kafka_python_api(
    51, AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, is_lenient=True
)
