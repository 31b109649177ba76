"""The cost of a request in a broker, measured in one process: the broker's own handlers and codecs
over simulated ports, so that only the request is measured.

Times are processor times; the work of a broker's threads is counted separately. Memory is what
Python allocates, without the bytes of the request itself.
"""

import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from simulation.world.clock import ProcessLoop, T
from simulation.world.cluster import SimulatedCluster
from simulation.world.network import CLIENT, SimulatedConnection, SimulatedNetwork
from storage_engine.core.security.principal import ANONYMOUS, Principal

SETTLE_MS = 3_000
"""The time after the answer, or without one, in which everything that the request has begun
ends."""


_KNOWN = Principal("known")
"""The principal of the broker, and of the client that makes the topic."""


class RequestCost(NamedTuple):
    """The cost of one request."""

    loop_ms: float
    """The time of the event loop, in all its turns."""
    turn_ms: float
    """The time of the longest turn."""
    threads_ms: float
    is_answered: bool


class _RawConnection(SimulatedConnection):
    """Sends bytes as they are."""

    def __init__(self, network: SimulatedNetwork, receiver: int) -> None:
        super().__init__(network, CLIENT, None, receiver)
        self.is_answered = False

    def send_frame(self, frame: memoryview) -> None:
        self._to.put(lambda: self._arrive(frame))

    def _response(self, frame: memoryview) -> None:
        self.is_answered = True


class CostMeter:
    """One simulated broker with a topic of some partitions."""

    def __init__(
        self, folder: Path, topic: str, partitions: int, *, is_refused: bool = False
    ) -> None:
        """`is_refused`: the client may do nothing of what it asks for."""
        self.cluster = SimulatedCluster(
            folder,
            1,
            principals={CLIENT: _KNOWN, 1: _KNOWN},
            authorizer_class_name="AclAuthorizer" if is_refused else "",
            super_users=str(_KNOWN) if is_refused else "",
            auto_create_topics_enable="false",
            default_replication_factor="1",
            offsets_topic_replication_factor="1",
            transaction_state_log_replication_factor="1",
            transaction_state_log_min_isr="1",
        )
        created = self.cluster.create_topic(topic, partitions)
        assert created.error_code == 0, created
        self.cluster.loop.run_for(SETTLE_MS)
        self.cluster.network.principals[CLIENT] = ANONYMOUS
        self.cluster[1].parts.requests.long_work.work_ns = time.perf_counter_ns
        self._threads_s = 0.0
        self._measure_threads()

    def close(self) -> None:
        self.cluster.close()

    def cost(self, request: bytes) -> RequestCost:
        """Send the request, and wait until everything that it has begun has ended."""
        loop = self.cluster.loop
        turns: list[float] = []
        self._threads_s = threads_s = 0.0
        now_s = time.thread_time
        begun_s = now_s()

        def after_event(process: ProcessLoop | None) -> None:
            nonlocal begun_s, threads_s
            spent_s = now_s() - begun_s - (self._threads_s - threads_s)
            if process is not None:
                turns.append(spent_s)
            threads_s = self._threads_s
            begun_s = now_s()

        connection = self._sent(request)
        loop.after_event = after_event
        begun_s = now_s()
        try:
            loop.run_for(SETTLE_MS)
        finally:
            loop.after_event = None
        is_answered = connection.is_answered or connection.closed
        self._end(connection)
        return RequestCost(
            sum(turns) * 1000, max(turns) * 1000, self._threads_s * 1000, is_answered
        )

    def memory(self, request: bytes) -> tuple[int, int]:
        """(most that was held at once, what is held while it waits or when it is answered)."""
        tracemalloc.start()
        try:
            connection = self._sent(request)
            before, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            self.cluster.loop.run_for(SETTLE_MS // 4)
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        self._end(connection)
        return peak - before, max(0, kept - before)

    def _sent(self, request: bytes) -> _RawConnection:
        connection = _RawConnection(self.cluster.network, 1)
        connection.send_frame(memoryview(bytearray(request)))
        return connection

    def _end(self, connection: _RawConnection) -> None:
        connection.cut("measured")
        self.cluster.loop.run_for(SETTLE_MS)

    def _measure_threads(self) -> None:
        loop = self.cluster.loop
        submit = loop.submit

        def measured(
            work: Callable[[], T],
            on_done: Callable[[T], None],
            on_error: Callable[[Exception], None],
            owner: ProcessLoop | None = None,
        ) -> None:
            def timed() -> T:
                begun_s = time.thread_time()
                try:
                    return work()
                finally:
                    self._threads_s += time.thread_time() - begun_s

            submit(timed, on_done, on_error, owner)

        loop.submit = measured  # type: ignore[method-assign]
