"""Runs an example that kills itself at a moment: at the n-th call of its user's function, before it
does something or after. Its sessions are short, so that others need not wait for their end."""

import importlib
import os
import signal
import sys
from typing import Any

SESSION = {"session.timeout.ms": 4_000, "heartbeat.interval.ms": 500}


def main() -> None:
    """Module, function, "before" or "after", number of the call; then the example's arguments."""
    name, function, moment, turn, *arguments = sys.argv[1:]
    module = importlib.import_module(name)
    does, consumer = getattr(module, function), module.Consumer
    calls = 0

    def fatal(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if moment == "before" and calls == int(turn):
            os.kill(os.getpid(), signal.SIGKILL)
        result = does(*given)
        if calls == int(turn):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(module, function, fatal)
    setattr(module, "Consumer", lambda config: consumer(config | SESSION))  # noqa: B010
    # On a busy machine that takes longer than a member may be silent for.
    importlib.import_module("storage_engine.protocol.records.record_decoder")
    sys.argv = [name, *arguments]
    module.main()


if __name__ == "__main__":
    main()
