"""The watcher of a broker: waits for the end of the broker's process, and then closes the session
that the broker had with ZooKeeper.

    python -P -m storage_engine.broker.watcher.program PID BROKER_ID

PID is its parent, the broker; BROKER_ID is for who looks at processes. Lines of JSON come by stdin
(`told`): the first says how ZooKeeper is reached, the others are sessions, of which the last one
counts. Once the broker has closed its session itself, the watcher ends.

A pidfd tells when the broker has ended; the end of stdin tells nothing. Signals that stop a service
are ignored: they come to the broker, too, which may take long to stop.

What closes a session is loaded when the broker has had time to start, or has ended. Source:
R-CTL12.
"""

import os
import select
import signal
import sys

from storage_engine.broker.watcher import NO_SESSION

CAN_NOT_WATCH = 3
"""The exit status where the system does not say when a process ends."""
IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
LOADING_DELAY_S = 10.0
_READ_BYTES = 1 << 16


class Lines:
    """The lines of a pipe: the first one, and the last whole one after it."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._rest = b""
        self.first = b""
        self.last = b""
        self.is_over = False

    def read(self) -> None:
        """Take what is there."""
        while not self.is_over:
            try:
                chunk = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            self.is_over = not chunk
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            for line in whole:
                if self.first:
                    self.last = line
                else:
                    self.first = line


def has_ended(broker: int, lines: Lines, timeout_s: float | None) -> bool:
    """Read lines until the process of the pidfd has ended, or its session is closed; False after
    `timeout_s`."""
    waiting = select.poll()
    waiting.register(broker, select.POLLIN)
    if not lines.is_over:
        waiting.register(lines.descriptor, select.POLLIN)
    while True:
        ready = dict(waiting.poll(None if timeout_s is None else timeout_s * 1000))
        # Also after the end: what the broker wrote at last is still in the pipe.
        lines.read()
        if lines.is_over and lines.descriptor in ready:
            waiting.unregister(lines.descriptor)
        if broker in ready or lines.last == NO_SESSION:
            return True
        if not ready:
            return False


def main() -> int:
    """Run the watcher; return its exit status."""
    for each in IGNORED:
        signal.signal(each, signal.SIG_IGN)
    pid = int(sys.argv[1])
    lines = Lines(sys.stdin.fileno())
    try:
        broker = os.pidfd_open(pid)
    except (AttributeError, OSError):
        if os.getppid() == pid:
            return CAN_NOT_WATCH
    # While a process lives it is its child's parent, so the number was the broker's when it was
    # opened if it still is the parent's. Else the broker has ended.
    if os.getppid() == pid:
        if not has_ended(broker, lines, LOADING_DELAY_S):
            from storage_engine.broker.watcher import closing

            has_ended(broker, lines, None)
    else:
        lines.read()
    if lines.last in (b"", NO_SESSION):
        return 0
    from storage_engine.broker.watcher import closing

    return closing.close_session(lines.first, lines.last)


if __name__ == "__main__":
    sys.exit(main())
