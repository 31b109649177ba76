"""The interfaces through which a broker uses the outside world, with real and simulated
implementations.

Broker code above these ports has no asyncio, thread, clock, socket or file of its own; answers come
back as callbacks on the one event loop.
"""

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")


class LogSlice(Protocol):
    """A run of whole record batches in a segment file. Only the transport reads its bytes."""

    def __len__(self) -> int: ...

    def view(self) -> memoryview:
        """Return the bytes, from the page cache where possible; valid at least until the event
        loop's next turn."""
        ...


class SlicedRecords:
    """Records of an answer in several pieces, which are sent one after the other. `len` is the size
    of all of them in bytes."""

    __slots__ = ("_size", "pieces")

    def __init__(self, pieces: Sequence["bytes | bytearray | memoryview | LogSlice"]) -> None:
        self.pieces = pieces
        self._size = sum(map(len, pieces))

    def __len__(self) -> int:
        return self._size


class Clock(Protocol):
    """The wall clock and the monotonic clock."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never run backwards."""
        ...


class Timer(Protocol):
    def cancel(self) -> None:
        """Cancel the call; harmless after it ran."""
        ...


class Scheduler(Protocol):
    """Calls later on the event loop."""

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call once, after `delay_ms`."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call once, in the next turn of the loop."""
        ...


class Background(Protocol):
    """Long work (fsync, deletion of files) off the event loop."""

    def submit(
        self,
        work: Callable[[], Result],
        on_done: Callable[[Result], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        """Run `work` elsewhere; one of the callbacks comes back on the loop."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The address at which another broker listens."""

    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportError:
    """A request got no answer; its effect on the other side is unknown."""

    reason: str


class ZkStatus(enum.Enum):
    """The outcome of a request to ZooKeeper."""

    OK = "ok"
    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    BAD_VERSION = "bad version"
    NOT_EMPTY = "not empty"
    ILLEGAL = "illegal"
    """No node can have this path, so there is none, and none can be created."""
    UNKNOWN = "unknown"
    """The connection was lost, or the session expired, or the request timed out: it may or may not
    have been carried out."""


class ZkStat(NamedTuple):
    """The part of a node's Stat that Headrace uses."""

    version: int
    czxid: int
    ephemeral_owner: int = 0
    mzxid: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkReply:
    """Answer of ZooKeeper to one request."""

    status: ZkStatus
    data: bytes = b""
    """The content of the node, after `get`."""
    children: Sequence[str] = ()
    """The sorted names, after `children`."""
    path: str = ""
    """The path of the created node, after `create`."""
    failed: int | None = None
    """The index of the operation that failed, after a `multi` that was refused."""
    stat: ZkStat | None = None

    @property
    def ok(self) -> bool:
        return self.status is ZkStatus.OK

    @property
    def is_absent(self) -> bool:
        """True when there is no such node."""
        return self.status in (ZkStatus.NO_NODE, ZkStatus.ILLEGAL)


class ZkOpKind(enum.Enum):
    CHECK = "check"
    CREATE = "create"
    SET = "set"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ZkOp:
    """One operation of a multi. `version` -1 matches any."""

    kind: ZkOpKind
    path: str
    data: bytes = b""
    version: int = -1
    ephemeral: bool = False
    sequence: bool = False
    """True for a creation in which ZooKeeper appends a number to the path."""


class SessionState(enum.Enum):
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


ZkCallback = Callable[[ZkReply], None]


class MetadataStore(Protocol):
    """ZooKeeper. Every callback comes on the event loop, exactly once; watches fire at most
    once."""

    def get(
        self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None
    ) -> None: ...

    def children(
        self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None
    ) -> None: ...

    def exists(
        self, path: str, on_reply: ZkCallback, watch: Callable[[], None] | None = None
    ) -> None:
        """Check for a node: NO_NODE when it is absent. The watch fires on its creation too."""
        ...

    def create(
        self,
        path: str,
        data: bytes,
        on_reply: ZkCallback,
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> None: ...

    def set(self, path: str, data: bytes, version: int, on_reply: ZkCallback) -> None: ...

    def delete(self, path: str, version: int, on_reply: ZkCallback) -> None: ...

    def multi(self, operations: Sequence[ZkOp], on_reply: ZkCallback) -> None:
        """Carry out all operations or none; on failure `status` is that of the operation that
        failed."""
        ...

    def add_state_listener(self, listener: Callable[[SessionState], None]) -> None: ...

    @property
    def session_id(self) -> int:
        """The id of the present session; 0 when there is none."""
        ...

    @property
    def session_password(self) -> bytes:
        """The password that closes the present session, with its id; empty without a session."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process, as other processes of its machine can identify it."""

    boot_id: str
    """The id that the kernel gave itself when it started."""
    pid_namespace: int
    """The namespace in which `pid` is a number of this process."""
    time_namespace: int
    """The namespace whose clock counts `start_ticks`; 0 where the kernel has none."""
    pid: int
    start_ticks: int
    """When the process started, in the kernel's ticks since its own start."""


class OpenProcess(Protocol):
    """One process, even if another one gets its pid afterwards."""

    @property
    def start_ticks(self) -> int:
        """As in `ProcessIdentity`."""
        ...

    def when_ended(self, callback: Callable[[], None]) -> None:
        """Call once, on the event loop, when all of its threads are gone, with what they held."""
        ...

    def close(self) -> None:
        """Watch no more; the callback is not called any more."""
        ...


class Processes(Protocol):
    @property
    def own(self) -> ProcessIdentity | None:
        """This process; None where the system does not report its identity."""
        ...

    def open(self, pid: int) -> OpenProcess | None:
        """Return the process that has this pid now; None where it can't be watched."""
        ...


class PortAnswer(enum.Enum):
    """How another machine's kernel answers an attempt to connect."""

    ACCEPTED = "accepted"
    REFUSED = "refused"
    """No process listens on the port."""
    SILENT = "silent"
    """No answer came in time, or the network has failed."""


class PeerPorts(Protocol):
    """The ports of other brokers, as the kernels of their machines answer for them."""

    def on_closed(self, listener: Callable[[Endpoint], None]) -> None:
        """Call whenever another broker's kernel has ended a connection of this broker's to it."""
        ...

    def probe(self, endpoint: Endpoint, on_done: Callable[[PortAnswer], None]) -> None:
        """Try to connect. `on_done` comes once."""
        ...


class ForeignSessions(Protocol):
    """Sessions with ZooKeeper that are not this broker's."""

    def end(self, session_id: int, password: bytes, on_done: Callable[[bool], None]) -> None:
        """Close a session. `on_done(is_over)` comes once, on the event loop: False where ZooKeeper
        could not be asked, or did not answer in time."""
        ...
