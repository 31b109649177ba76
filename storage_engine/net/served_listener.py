"""One of a server's listeners: an address, and what becomes of the connections that come by it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from storage_engine.core.security.security_protocol import SecurityProtocol

if TYPE_CHECKING:
    from storage_engine.net.tls.profile import ListenerTls

ConnectionT = TypeVar("ConnectionT")

FrameHandler = Callable[[ConnectionT, memoryview], None]
"""Called with each frame without its length; the view is valid during the call. To answer, it calls
`connection.begin()` and then, at any time, `respond` on the exchange. An exception closes the
connection."""


class AcceptRate(Protocol):
    """Bounds how often connections are accepted."""

    def wait_ms(self) -> int:
        """How long the next one has to wait; 0: it need not."""
        ...

    def count(self) -> None:
        """One was accepted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedListener(Generic[ConnectionT]):
    """Where to listen, and who handles what comes there."""

    handle: FrameHandler[ConnectionT]
    host: str
    """Empty: all addresses of the machine."""
    port: int = 0
    """0: any free port."""
    name: str = SecurityProtocol.PLAINTEXT.name
    on_opened: Callable[[ConnectionT], None] | None = None
    """Gets each connection that is admitted, before its first frame."""
    tls: "ListenerTls | None" = None
    """None: nothing is encrypted."""
    max_connections: int | None = None
    """`listener.name.<name>.max.connections`, beside that of the whole broker."""
    rate: AcceptRate | None = None
    """None: connections are accepted as they come."""
    is_for_brokers: bool = False
    """Whether brokers talk to each other by it, and clients by others: it is served also when
    clients have taken all places."""
