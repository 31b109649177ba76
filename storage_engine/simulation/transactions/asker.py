"""Who asks coordinators, in callbacks, until the answer is final: what is retriable is asked again,
of whoever the coordinator is by then.

Rule: now and then a request is sent a second time, on another connection, and arrives when nobody
expects it any more. Source: KIP-98, R-SPARK2.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import TopicPartition
from storage_engine.core.ports import TransportError
from storage_engine.protocol.apis import find_coordinator
from storage_engine.simulation.checks.checkers import Checker
from storage_engine.simulation.checks.trace import Trace
from storage_engine.simulation.clients.workload import WorkloadClient
from storage_engine.simulation.transactions.group_ledger import GroupLedger
from storage_engine.simulation.transactions.ledger import TransactionLedger, Word
from storage_engine.simulation.transactions.state_log import CommittedDecisions
from storage_engine.simulation.world.cluster import SimulatedCluster

GROUP_KEY = 0
TRANSACTION_KEY = 1
"""key_type of FindCoordinator."""
RETRY_MS = (20, 250)
ECHO_MS = (1, 3000)
"""How long after a request its echo is sent."""
ECHOES = 0.1
"""Of the requests have one."""
ASKED_AGAIN = (ErrorCode.OPERATION_NOT_ATTEMPTED,)
"""Beside what is retriable: another partition of the request was refused for a reason that is."""

Codes = Callable[[Any], Sequence[int]]


class World(Protocol):
    """What all of one run share."""

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
    """Every transaction commits offsets, and nobody waits long for that."""
    waiting: set[str]
    """Who has asked for something, and has no answer yet."""

    def number(self) -> int:
        """Another one each time."""
        ...

    def later(self, act: Callable[[], None], *, within_ms: tuple[int, int] = RETRY_MS) -> None:
        """Do it after a random time."""
        ...


class Way:
    """To the coordinator of a name, whose state lies in that partition."""

    def __init__(self, key: str, key_type: int, state: TopicPartition) -> None:
        self.key = key
        self.key_type = key_type
        self.state = state
        self.broker: int | None = None
        """Of whom it was heard last."""


class Asker(WorkloadClient):
    """Asks one coordinator or another."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.cluster, world.checker, world.choose, f"{name} {world.number()}")
        self.world = world
        self.is_doubtful = False
        """Something that it has sent may arrive late."""
        self.word = Word(0, 0, False)
        """Of the newest answer."""

    def ask(
        self,
        way: Way,
        spec: Any,
        version: int,
        request: Any,
        codes: Codes,
        then: Callable[[Any, ErrorCode], None],
        *,
        is_wanted: Callable[[], bool] = lambda: True,
        has_echo: bool = True,
    ) -> None:
        """`then` gets the answer and the worst of its codes, once that is final; nothing, and
        nobody is asked again, once `is_wanted` says no. `has_echo`: it may arrive twice."""
        world = self.world
        token = f"{self.name}: {spec.name} {world.number()}"
        world.waiting.add(token)

        def again() -> None:
            """After a moment, having asked who the coordinator is."""
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

            def on_reply(answer: Any) -> None:
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
                    self.word = Word(sent_ms, self.cluster.loop.now_ms, leads)
                    then(answer, final[0] if final else ErrorCode.NONE)

            self.request(broker, spec, version, request, on_reply)
            self._echo(broker, spec, version, request, is_sent=has_echo)

        send()

    def _has_led(self, broker: int, tp: TopicPartition, epoch: int) -> bool:
        """Whether the broker led under that epoch, and does still by the word of ZooKeeper."""
        state = self.checker.record(tp).state
        return (
            epoch >= 0
            and self.epoch_of(broker, tp) == epoch
            and state is not None
            and (state.leader, state.leader_epoch) == (broker, epoch)
        )

    def _find_coordinator(self, way: Way, then: Callable[[], None]) -> None:
        wanted = find_coordinator.FindCoordinatorRequest(key=way.key, key_type=way.key_type)

        def on_found(answer: Any) -> None:
            if isinstance(answer, TransportError) or answer.error_code:
                self.world.later(then)
            else:
                way.broker = answer.node_id
                then()

        broker = self.choose.choice(self.cluster.brokers).id
        self.request(broker, find_coordinator.API, 3, wanted, on_found)

    def _echo(
        self, broker: int, spec: Any, version: int, request: Any, *, is_sent: bool = True
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
