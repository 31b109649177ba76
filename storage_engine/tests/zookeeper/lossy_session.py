"""A session with the simulated ZooKeeper that a test can break at a given operation."""

from collections.abc import Callable
from typing import Any

from simulation.world.clock import ProcessLoop, SimulatedLoop
from simulation.world.zookeeper import SimulatedZooKeeper
from simulation.world.zookeeper_session import UNKNOWN, SimulatedSession
from storage_engine.core.ports import ZkReply

ROUND_TRIP_MS = 2
"""An operation's way to ZooKeeper and its answer's way back."""
TIMEOUT_MS = 6_000
"""The timeout of a session; longer than every pause of an election or a registration."""


class LossySession(SimulatedSession):
    """Implements `MetadataStore`."""

    lose_request = False
    """The next operation, reads included, is not done, and is answered UNKNOWN."""
    lose_answer = False
    """The next operation, reads included, is done, but is answered UNKNOWN."""

    def __init__(self, server: SimulatedZooKeeper, process: ProcessLoop) -> None:
        super().__init__(server, process, timeout_ms=TIMEOUT_MS)

    def expire_and_reconnect(self) -> None:
        """Let the server drop the session, and begin another one."""
        self.cut_off()
        self.server.loop.run_for(self.timeout_ms)
        self.reconnect()

    def _submit(
        self,
        path: str,
        do: Callable[[int], ZkReply],
        on_reply: Callable[[ZkReply], None],
        **options: Any,
    ) -> None:
        def maybe(session_id: int) -> ZkReply:
            if self.lose_request:
                self.lose_request = False
                return UNKNOWN
            reply = do(session_id)
            if self.lose_answer:
                self.lose_answer = False
                return UNKNOWN
            return reply

        super()._submit(path, maybe, on_reply, **options)


def new_server() -> SimulatedZooKeeper:
    return SimulatedZooKeeper(SimulatedLoop())


def settle(server: SimulatedZooKeeper) -> None:
    """Run until all answers and watches have come; no pause is over."""
    server.loop.run_for(50)


def pause(server: SimulatedZooKeeper) -> None:
    """Run until every pause of an election or a registration is over."""
    server.loop.run_for(TIMEOUT_MS)
