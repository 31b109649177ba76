"""The watcher of a broker: a small process beside it, on its machine, that closes the broker's
session once the kernel says that the broker has ended.

Fault model. The end is noticed, and acted on, after a delay: mostly a short one, sometimes so late
that the broker's next incarnation has registered. An attempt to close may fail, and is repeated; it
fails while the machine does not reach ZooKeeper. A watcher may be killed alone, its pipe may end
though the broker lives, and it ends with its machine. The broker writes into the pipe what session
it has; what was written before its end is read.

What is read, and whether the broker has ended, is decided by the real watcher's code on real pipes:
one for the lines, and one in place of the pidfd, which is ready once its other end is closed.
"""

import os
from collections.abc import Callable

from simulation.world.processes import SimulatedProcess
from simulation.world.zookeeper import SimulatedZooKeeper
from storage_engine.broker.watcher import NO_SESSION
from storage_engine.broker.watcher.closing import PAUSE_MAX_S, PAUSE_S, SESSION_TIMEOUTS
from storage_engine.broker.watcher.program import Lines, has_ended
from storage_engine.broker.watcher.session_watcher import RESTART_S
from storage_engine.broker.watcher.told import session_line, session_of
from storage_engine.zookeeper.session_credentials import SessionCredentials

RESTART_MS = int(RESTART_S * 1000)
PAUSE_MS = int(PAUSE_S * 1000)
PAUSE_MAX_MS = int(PAUSE_MAX_S * 1000)
_FIRST_LINE = b"{}\n"
"""The first line says how ZooKeeper is reached."""


class _Descriptors:
    """Pipes that are closed with their owner."""

    def __init__(self) -> None:
        self._open: set[int] = set()

    def pipe(self) -> tuple[int, int]:
        both = os.pipe()
        self._open.update(both)
        return both

    def write(self, descriptor: int, data: bytes) -> None:
        if descriptor in self._open:
            os.write(descriptor, data)

    def close(self, descriptor: int) -> None:
        if descriptor in self._open:
            self._open.discard(descriptor)
            os.close(descriptor)

    def __del__(self) -> None:
        for each in self._open:
            os.close(each)


class SimulatedWatcher:
    """The watcher of one life of a broker."""

    def __init__(
        self,
        server: SimulatedZooKeeper,
        broker: SimulatedProcess,
        broker_id: int,
        *,
        session_timeout_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self._server = server
        self._machine = broker.machine
        self._timeout_ms = session_timeout_ms
        self._lives = True
        self._ended_ms: int | None = None
        self._attempts = 0
        self._descriptors = _Descriptors()
        self._pidfd, self._process_end = self._descriptors.pipe()
        descriptor, self._pipe_end = self._descriptors.pipe()
        self._lines = Lines(descriptor)
        self._descriptors.write(self._pipe_end, _FIRST_LINE)
        broker.watchers.append(self._noticed)

    def told(self, session_id: int) -> None:
        """Write a line into the pipe: the broker's present session; 0 after it has closed it."""
        password = self._server.password_of(session_id)
        credentials = SessionCredentials(session_id=session_id, password=password)
        line = session_line(credentials if session_id else None)
        self._descriptors.write(self._pipe_end, line)
        self._look()

    def pipe_ended(self) -> None:
        """End the pipe, which proves nothing: the broker may have lost a descriptor."""
        self._descriptors.close(self._pipe_end)
        self._look()

    def die(self) -> None:
        """End, and close nothing more."""
        self._lives = False

    @property
    def lives(self) -> bool:
        return self._lives and not self._machine.is_dark

    def _noticed(self) -> None:
        """Receive the kernel's notice that the process has ended."""
        self._descriptors.close(self._process_end)
        self._look()

    def _look(self) -> None:
        """Do what the real one does when a descriptor is ready."""
        if not self.lives or self._ended_ms is not None:
            return
        if not has_ended(self._pidfd, self._lines, 0):
            return
        self._ended_ms = self._server.loop.now_ms
        if self._lines.last in (b"", NO_SESSION):
            self.die()
        else:
            self._later(self._machine.watcher_ms(), self.close_session)

    def close_session(self) -> None:
        """Close the session that the broker had, once more where an attempt has failed."""
        self._attempts += 1
        if self._machine.reaches_zookeeper and not self._machine.attempt_fails():
            # To connect takes a round trip; once sent, it arrives though the sender is gone.
            server = self._server
            delay_ms = server.delay_ms() + server.delay_ms() + server.delay_ms()
            server.loop.call_later(delay_ms, self._close)
        elif not self._is_expired():
            pause_ms = min(PAUSE_MAX_MS, PAUSE_MS << min(self._attempts - 1, 10))
            self._later(pause_ms, self.close_session)

    def _close(self) -> None:
        session_id = self.session_to_close()
        self._server.close_session(session_id, by_watcher=True)
        self._server.on_watcher_done(session_id)

    def session_to_close(self) -> int:
        """Return the last session that the broker told, whatever others have told since."""
        return session_of(self._lines.last).session_id

    def _is_expired(self) -> bool:
        assert self._ended_ms is not None
        return self._server.loop.now_ms > self._ended_ms + SESSION_TIMEOUTS * self._timeout_ms

    def _later(self, delay_ms: int, act: Callable[[], None]) -> None:
        self._server.loop.call_later(delay_ms, lambda: act() if self.lives else None)
