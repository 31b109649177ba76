"""Log-ins as users write them, and the value that is made of them."""

from storage_engine.client.settings import client_security

SCRAM_LINE = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="hidden-pw";'
)

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"

LOG_IN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "alice",
    "sasl.password": "hidden-pw",
}


def parsed(config):
    return client_security(config, client="client")
