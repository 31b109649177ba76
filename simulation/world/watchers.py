"""The watcher of a broker: a small process beside it, on its machine, that closes the broker's
session once the kernel says that the broker has ended.

Fault model. The end is noticed, and acted on, after a delay: mostly a short one, sometimes so late
that the broker's next incarnation has registered. An attempt to close may fail, and is repeated; it
fails while the machine does not reach ZooKeeper. A watcher may be killed alone, its pipe may end
though the broker lives, and it ends with its machine. The broker writes into the pipe what session
it has; what was written before its end is read.
"""

from collections.abc import Callable

from simulation.world.processes import SimulatedProcess
from simulation.world.zookeeper import SimulatedZooKeeper

RESTART_MS = 10_000
"""A broker starts its watcher anew so long after the last start, if that one ends."""
PAUSE_MS = 200
PAUSE_MAX_MS = 2_000
"""The pause between two attempts doubles up to this."""
SESSION_TIMEOUTS = 2
"""So many session timeouts after the broker's end its session has expired."""


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
        self._session_id = 0
        self._ended_ms: int | None = None
        self._attempts = 0
        broker.watchers.append(self._noticed)

    def told(self, session_id: int) -> None:
        """Read a line of the pipe: the broker's present session."""
        self._session_id = session_id

    def pipe_ended(self) -> None:
        """Read the end of the pipe, which proves nothing: the broker may have lost a descriptor."""

    def die(self) -> None:
        """End, and close nothing more."""
        self._lives = False

    @property
    def lives(self) -> bool:
        return self._lives and not self._machine.is_dark

    def _noticed(self) -> None:
        """Receive the kernel's notice that the process has ended."""
        self._ended_ms = self._server.loop.now_ms
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
        return self._session_id

    def _is_expired(self) -> bool:
        assert self._ended_ms is not None
        return self._server.loop.now_ms > self._ended_ms + SESSION_TIMEOUTS * self._timeout_ms

    def _later(self, delay_ms: int, act: Callable[[], None]) -> None:
        self._server.loop.call_later(delay_ms, lambda: act() if self.lives else None)
