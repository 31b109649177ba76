"""The expiry of brokers' certificates, read in a TLS handshake of its own, which trusts every
certificate and sends nothing: an expired certificate must be seen, too.
"""

import contextlib
import socket
import ssl
import time
from collections.abc import Mapping

from storage_engine.client.addresses import Address

LOOK_EVERY_S = 60.0
LOOK_SOON_EVERY_S = 4.0
"""The interval for a certificate that expires soon, so that its renewal is seen quickly."""
SOON_MS = 31 * 24 * 3600 * 1000
_TIMEOUT_S = 0.5


class CertificateLooks:
    """Reads each broker's certificate once a minute, or every few seconds if it expires soon."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, int | None]] = {}

    def look(self, addresses: Mapping[int, Address]) -> dict[int, int]:
        """Return the expiry of brokers' certificates, in ms since 1970, as far as it is known."""
        now_s = time.monotonic()
        for broker, address in addresses.items():
            looked = self._known.get(broker)
            if looked is None or now_s - looked[0] >= _pause_s(looked[1]):
                found = expires_ms(address)
                if found is None and looked is not None:
                    found = looked[1]
                self._known[broker] = (now_s, found)
        return {broker: at for broker, (_, at) in self._known.items() if at is not None}


def _pause_s(known_ms: int | None) -> float:
    ends_soon = known_ms is not None and known_ms - time.time() * 1000 < SOON_MS
    return LOOK_SOON_EVERY_S if ends_soon else LOOK_EVERY_S


def expires_ms(address: Address) -> int | None:
    """Return the expiry of the server's certificate, in ms since 1970; None if it sends none."""
    from cryptography import x509

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with contextlib.suppress(OSError, ValueError):
        with (
            socket.create_connection(address, timeout=_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=address[0]) as encrypted,
        ):
            shown = encrypted.getpeercert(binary_form=True)
        if shown is not None:
            certificate = x509.load_der_x509_certificate(shown)
            return int(certificate.not_valid_after_utc.timestamp() * 1000)
    return None
