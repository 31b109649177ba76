"""The names of a schema registry's options, which are Confluent's."""

from storage_engine.client.security.security_rows import SECRET_KEYS, SECURITY_KEYS

PREFIX = "schema.registry."
URL = "schema.registry.url"
USER_INFO = "schema.registry.basic.auth.user.info"
CREDENTIALS_SOURCE = "schema.registry.basic.auth.credentials.source"
REQUEST_TIMEOUT = "schema.registry.request.timeout.ms"
API_TIMEOUT = "schema.registry.default.api.timeout.ms"

TLS_KEYS = tuple(
    sorted(
        key
        for key in SECURITY_KEYS
        if key.startswith("ssl.") or key == "enable.ssl.certificate.verification"
    )
)
_OWN_KEYS = (URL, USER_INFO, CREDENTIALS_SOURCE, REQUEST_TIMEOUT, API_TIMEOUT)

REGISTRY_KEYS = (*_OWN_KEYS, *(PREFIX + key for key in TLS_KEYS))
"""The names of all options of a registry."""

REGISTRY_SECRETS = frozenset({USER_INFO, *(PREFIX + key for key in TLS_KEYS if key in SECRET_KEYS)})
