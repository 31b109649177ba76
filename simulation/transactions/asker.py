"""A client of coordinators that repeats requests, in callbacks, until the answer is final: after a
retriable error it asks the present coordinator.

Now and then a request is sent a second time, on another connection, and arrives late. Source:
KIP-98, R-SPARK2.
"""

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from simulation.checks.checkers import Checker
from simulation.checks.trace import Trace
from simulation.transactions.group_ledger import GroupLedger
from simulation.transactions.ledger import AnswerTimes, TransactionLedger
from simulation.transactions.state_log import CommittedDecisions
from simulation.workload import WorkloadClient
from simulation.world.cluster import SimulatedCluster
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis.spec import ApiSpec, Req, Resp
from storage_engine.protocol.messages import find_coordinator

GROUP_KEY = 0
TRANSACTION_KEY = 1
"""The key_type of FindCoordinator."""
RETRY_MS = (20, 250)
ECHO_MS = (1, 3000)
"""The delays between a request and its echo."""
ECHOES = 0.1
"""The share of requests with an echo."""
ASKED_AGAIN = (ErrorCode.OPERATION_NOT_ATTEMPTED,)
"""The code, not retriable itself, after which a request is repeated: another partition of it was
refused for a retriable reason."""


class World(Protocol):
    """The objects that all clients of one run share."""

    cluster: SimulatedCluster
    checker: Checker
    trace: Trace
    choose: random.Random
    ledger: TransactionLedger
    groups: GroupLedger
    decisions: CommittedDecisions
    partitions: Sequence[TopicPartition]
    over: bool
    hurries: bool
    """True when every transaction commits offsets, and no client waits long for that."""
    waiting: set[str]
    """The clients that wait for an answer."""

    def number(self) -> int:
        """Return a number that was not returned before."""
        ...

    def later(self, act: Callable[[], None], *, within_ms: tuple[int, int] = RETRY_MS) -> None:
        """Call `act` after a random time."""
        ...


class Way:
    """The way to the coordinator of a name, whose state lies in that partition."""

    def __init__(self, key: str, key_type: int, state: TopicPartition) -> None:
        self.key = key
        self.key_type = key_type
        self.state = state
        self.broker: int | None = None
        """The broker that was named last."""


class Asker(WorkloadClient):
    """A client that asks coordinators."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.cluster, world.checker, world.choose, f"{name} {world.number()}")
        self.world = world
        self.is_doubtful = False
        """True while something that it has sent may arrive late."""
        self.answer_times = AnswerTimes(0, 0, False)
        """The details of the newest answer."""

    def ask(
        self,
        way: Way,
        spec: ApiSpec[Req, Resp],
        version: int,
        request: Req,
        codes: Callable[[Resp], Sequence[int]],
        then: Callable[[Resp, ErrorCode], None],
        *,
        is_wanted: Callable[[], bool] = lambda: True,
        has_echo: bool = True,
    ) -> None:
        """Send a request until its answer is final; `then` gets that and the worst of its codes.
        Once `is_wanted` returns False nothing is sent or called any more. `has_echo`: it may arrive
        twice."""
        world = self.world
        token = f"{self.name}: {spec.name} {world.number()}"
        world.waiting.add(token)

        def again() -> None:
            """Repeat the request after a moment, with a new search for the coordinator."""
            way.broker = None
            world.later(send)

        def send() -> None:
            if not is_wanted():
                world.waiting.discard(token)
                return
            broker = way.broker
            if broker is None:
                self._find_coordinator(way, send)
                return
            sent_ms, epoch = self.cluster.loop.now_ms, self.epoch_of(broker, way.state)

            def on_reply(answer: Resp | TransportError) -> None:
                if isinstance(answer, TransportError):
                    self.is_doubtful = True
                    again()
                    return
                found = [ErrorCode.of(code) for code in codes(answer) if code]
                final = [code for code in found if not code.retriable and code not in ASKED_AGAIN]
                if found and not final:
                    again()
                    return
                world.waiting.discard(token)
                if is_wanted():
                    leads = self._has_led(broker, way.state, epoch)
                    self.answer_times = AnswerTimes(sent_ms, self.cluster.loop.now_ms, leads)
                    then(answer, final[0] if final else ErrorCode.NONE)

            self.request(broker, spec, version, request, on_reply)
            self._echo(broker, spec, version, request, is_sent=has_echo)

        send()

    def _has_led(self, broker: int, tp: TopicPartition, epoch: int) -> bool:
        """Return True when the broker led under that epoch, and still does according to
        ZooKeeper."""
        state = self.checker.record(tp).state
        return (
            epoch >= 0
            and self.epoch_of(broker, tp) == epoch
            and state is not None
            and (state.leader, state.leader_epoch) == (broker, epoch)
        )

    def _find_coordinator(self, way: Way, then: Callable[[], None]) -> None:
        wanted = find_coordinator.FindCoordinatorRequest(key=way.key, key_type=way.key_type)

        def on_found(answer: find_coordinator.FindCoordinatorResponse | TransportError) -> None:
            if isinstance(answer, TransportError) or answer.error_code:
                self.world.later(then)
            else:
                way.broker = answer.node_id
                then()

        broker = self.choose.choice(self.cluster.brokers).id
        self.request(broker, find_coordinator.API, 3, wanted, on_found)

    def _echo(
        self,
        broker: int,
        spec: ApiSpec[Req, Resp],
        version: int,
        request: Req,
        *,
        is_sent: bool = True,
    ) -> None:
        if self.choose.random() >= ECHOES:
            return
        self.is_doubtful = True

        def send() -> None:
            if not is_sent:
                return
            self.request(
                broker, spec, version, request, lambda _: None, channel=f"{self.name} again"
            )

        self.world.later(send, within_ms=ECHO_MS)
