"""`ssl.cipher.suites`: names as in the standards and in Java, and as in OpenSSL.

Only suites that keep what was sent secret when a key becomes known later (ephemeral keys), with
authenticated encryption. Those of TLS 1.3 can't be chosen one by one: Python's library has no call
for it. Source: RFC 5288, 5289, 7905, 8446.
"""

from collections.abc import Sequence
from typing import NamedTuple

from storage_engine.core.errors import ConfigError

_OF_TLS_1_2 = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
}
_OF_TLS_1_3 = (
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
)
_KEY = "ssl.cipher.suites"


class CipherSuites(NamedTuple):
    """The suites that were chosen."""

    tls_1_2: str
    """As OpenSSL takes them; empty when there is none."""
    has_tls_1_3: bool


ALL_SUITES = CipherSuites(":".join(_OF_TLS_1_2.values()), True)


def chosen_suites(names: Sequence[str]) -> CipherSuites:
    """The suites of those names, all when none is given. ConfigError."""
    if not names:
        return ALL_SUITES
    of_tls_1_2 = []
    of_tls_1_3 = set()
    for name in names:
        if name in _OF_TLS_1_3:
            of_tls_1_3.add(name)
        elif name in _OF_TLS_1_2:
            of_tls_1_2.append(_OF_TLS_1_2[name])
        elif name in _OF_TLS_1_2.values():
            of_tls_1_2.append(name)
        else:
            known = ", ".join((*_OF_TLS_1_3, *_OF_TLS_1_2))
            raise ConfigError(f"{_KEY}={name}: no such suite is served, there are {known}")
    if of_tls_1_3 and len(of_tls_1_3) < len(_OF_TLS_1_3):
        raise ConfigError(
            f"{_KEY}={','.join(names)}: the suites of TLS 1.3 can't be chosen one by one: name all"
            f" of {', '.join(_OF_TLS_1_3)}, or none of them to serve TLS 1.2 alone"
        )
    return CipherSuites(":".join(of_tls_1_2), bool(of_tls_1_3))
