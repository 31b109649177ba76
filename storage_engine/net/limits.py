"""Every bound of the network layer in one place, each with its reason; and memory for large frames,
handed out again only when no view of it is left, which its reference count shows: a frame that
somebody still holds is never overwritten. Source: R-NET1, R-NET3.
"""

import mmap
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

LENGTH = struct.Struct(">I")
"""The length in front of every frame. Read unsigned: a negative length is then just one that is too
large."""

LENGTH_BYTES = 4

SCRATCH_BYTES = 1024 * 1024
"""The size of one read from a socket. It holds several of the usual large frames of 128 KiB, so
that only one in eight, not every other one, is cut by the end of a read and has to be copied."""

EXACT_RECEIVE_BYTES = 64 * 1024
"""A frame above this is received into a buffer of its own size, without passing through the scratch
buffer."""

POOLED_BYTES = 64 * 1024 * 1024
"""Memory of large frames kept for the next one: fresh pages cost more than the receive itself."""

SMALL_WRITE_BYTES = 64 * 1024
"""Responses up to this total are joined and sent at once; above, the copy would cost more than a
system call."""

WRITE_PIECE_BYTES = (1024 + 64) * 1024
"""The most bytes offered to a socket in one call: a fetch of 1 MiB with its header."""

TURN_WRITE_BYTES = 2 * WRITE_PIECE_BYTES
"""The most bytes sent to one client in a turn of the loop: two fetches of 1 MiB that came together,
and not so much that one reader occupies the loop for longer than a millisecond."""

WRITE_HIGH_WATER_BYTES = 128 * 1024
"""Unsent bytes at which a connection is no longer read: for a client that does not take answers no
more work is done."""

UNSENT_RESPONSE_BUFFERS = 1024
"""Buffers of answers collected in one run of requests before they are sent: a tiny request can ask
for a large answer."""

IOV_BUFFERS = 64
"""Buffers in one writev; far below the kernel's 1024."""

RESPONSE_MAX_BYTES = 256 * 1024 * 1024
"""Largest response believed: a fetch answers its max_bytes, or one batch, which the largest request
bounds."""

RECONNECT_BACKOFF_MS = 50
"""Pause after a failed connection to another broker; doubled with each further failure."""

RECONNECT_BACKOFF_MAX_MS = 1000
"""A broker that is back is found again within a second."""

CONNECT_TIMEOUT_MS = 5000
"""An address that swallows packets; a dead process refuses at once."""

HANDSHAKE_TIMEOUT_MS = 10_000
"""How long a TLS client may take for its first message, and again for the rest of its handshake:
some round trips over any distance."""

HALF_OPEN_PART = 2
"""One in so many of `max.connections` may be in the middle of a handshake."""

TLS_SHUTDOWN_TIMEOUT_MS = 1000
"""How long a TLS connection that is closed waits for the other side's close; and how long a client
whose handshake has failed may take to close."""

TLS_WRITE_BYTES = 64 * 1024
"""Bytes of an answer that are copied and encrypted in one go: what stays in a processor's cache
meanwhile takes a tenth less time."""

TURN_NS = 5_000_000
"""Requests of all connections that one turn of the event loop takes up: the rest has its turn after
what else is due, such as answers, timers and the session with ZooKeeper."""

LISTEN_BACKLOG = 1024
"""Connections waiting for accept: all clients of a cluster come back at once after a failover."""

ACCEPTS_PER_TURN = 64
"""Connections taken up in one turn of the loop; each costs some 50 us."""

ACCEPT_PAUSE_MS = 100
"""How long the broker stops accepting connections when the process is out of descriptors.
Descriptors become free when a connection ends; meanwhile the system's queue holds new connections.
"""

RATE_WAIT_MAX_MS = 1000
"""The longest wait for max.connection.creation.rate before the rate is read again: it may have
changed."""

LOG_AGAIN_MS = 10_000
"""The same message about refused or waiting connections is logged only this often."""

DESCRIPTORS_RESERVED = 64
"""Descriptors kept for everything but clients and the files of logs: libraries, the broker's log
file, ZooKeeper, other brokers, flushes and checkpoints."""


def most_connections(descriptor_limit: int, descriptors_of_logs: int) -> int:
    """The most client connections with which the logs of this process always find descriptors; at
    least an eighth of `descriptor_limit`."""
    reserved = min(DESCRIPTORS_RESERVED, descriptor_limit // 4)
    return max(descriptor_limit // 8, descriptor_limit - descriptors_of_logs - reserved, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """The limits of what clients may take from one server."""

    request_max_bytes: int = 100 * 1024 * 1024
    """`socket.request.max.bytes`: a frame that announces more closes its connection."""

    pending_per_connection: int = 100
    """Unanswered requests of one connection; clients pipeline 5 to 32."""

    queued_max_requests: int = 500
    """`queued.max.requests`: unanswered requests of all connections. Every connection may always
    have one, so that clients who wait (long polls) never keep another client from being served."""

    max_connections: int = 2**31 - 1
    """`max.connections`."""

    max_connections_per_ip: int = 2**31 - 1
    """`max.connections.per.ip`."""

    per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    """`max.connections.per.ip.overrides`, by address."""

    receiving_max_bytes: int = -1
    """`queued.max.request.bytes`: the most memory for large requests of all connections that are
    being received or wait to be handled; -1 sets no limit. One is always let in, however large."""

    idle_max_ms: int = 600_000
    """`connections.max.idle.ms`: a connection without a request for this long is closed; -1 means
    never."""

    send_buffer_bytes: int = -1
    """`socket.send.buffer.bytes`; -1: the system's, which grows by itself."""

    receive_buffer_bytes: int = -1
    """`socket.receive.buffer.bytes`; -1: the system's, which grows by itself."""


_ROUND_BYTES = 64 * 1024


def _references(buffers: list[mmap.mmap], index: int) -> int:
    return sys.getrefcount(buffers[index])


_FREE_REFERENCES = _references([mmap.mmap(-1, 1)], 0)
"""The result of `_references` for a buffer that only its list knows; measured, since it is not the
same in every Python."""


class BufferPool:
    """Anonymous memory for frames above EXACT_RECEIVE_BYTES.

    Pages are taken from the system as bytes arrive: a frame that only announces its size costs
    nothing.
    """

    __slots__ = ("_buffers", "_pooled_bytes", "_pooled_max_bytes")

    def __init__(self, pooled_max_bytes: int = POOLED_BYTES) -> None:
        self._buffers: list[mmap.mmap] = []
        self._pooled_bytes = 0
        self._pooled_max_bytes = pooled_max_bytes

    def take(self, size: int) -> memoryview:
        """A writable view of exactly `size` bytes, with arbitrary contents."""
        buffers = self._buffers
        for index in range(len(buffers)):
            if len(buffers[index]) >= size and _references(buffers, index) == _FREE_REFERENCES:
                return memoryview(buffers[index])[:size]
        capacity = max(_ROUND_BYTES, 1 << (size - 1).bit_length())
        if self._pooled_bytes + capacity > self._pooled_max_bytes:
            self._drop_free()
        if self._pooled_bytes + capacity > self._pooled_max_bytes:
            return memoryview(mmap.mmap(-1, size))
        fresh = mmap.mmap(-1, capacity)
        self._buffers.append(fresh)
        self._pooled_bytes += capacity
        return memoryview(fresh)[:size]

    def _drop_free(self) -> None:
        """Frees unused buffers, which were too small for the present frame."""
        kept = [
            index
            for index in range(len(self._buffers))
            if _references(self._buffers, index) != _FREE_REFERENCES
        ]
        self._buffers = [self._buffers[index] for index in kept]
        self._pooled_bytes = sum(map(len, self._buffers))
