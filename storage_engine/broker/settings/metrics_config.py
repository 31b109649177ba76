"""The address of a broker's metrics, as its settings have it."""

import ipaddress
import re
import socket
from dataclasses import dataclass

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.settings import (
    METRICS_LISTENER,
    METRICS_REMOTE,
)

_FORM = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:/\s]+):(?P<port>\d{1,5})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsConfig:
    host: str
    port: int
    """0: any free port."""
    names: tuple[str, ...]
    """By which it may be called, beside addresses and localhost."""

    @classmethod
    def of(cls, text: str, *, is_remote_allowed: bool, names: tuple[str, ...]) -> "MetricsConfig":
        """ConfigError for what is no address, or one that other machines reach where that is not
        allowed."""
        match = _FORM.fullmatch(text.strip())
        if match is None or int(match["port"]) > 65535:
            raise ConfigError(f"{METRICS_LISTENER}={text}: must be HOST:PORT, e.g. 127.0.0.1:9308")
        host = match["host"].strip("[]")
        if not is_remote_allowed and not _is_loopback(host):
            raise ConfigError(
                f"{METRICS_LISTENER}={text}: other machines reach that address, and nobody logs in"
                f" to read metrics; take 127.0.0.1, or say {METRICS_REMOTE}=true"
            )
        return cls(host=host, port=int(match["port"]), names=(*names, socket.gethostname()))


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
