"""The port for requests to other brokers, which real and simulated connections implement."""

from collections.abc import Callable
from typing import Protocol

from storage_engine.core.ports import Endpoint, TransportError
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp


class Transport(Protocol):
    """Requests to other brokers. Order holds within (endpoint, channel)."""

    def request(
        self,
        endpoint: Endpoint,
        channel: str,
        spec: ApiSpec[Req, Resp],
        version: int,
        message: Req,
        *,
        timeout_ms: int,
        on_reply: Callable[[Resp | TransportError], None],
    ) -> None:
        """Send `message`; `on_reply` gets the decoded response or a TransportError, exactly once.

        `channel` names a connection of its own ("fetch", "controller"), so that a long poll does
        not delay other requests.
        """
        ...

    def disconnect(self, endpoint: Endpoint, channel: str) -> None:
        """Close the connection; pending requests are answered with TransportError."""
        ...
