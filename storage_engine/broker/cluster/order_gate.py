"""Admits requests of the controller that ZooKeeper names, and of no other broker.

    order ──wrong incarnation of this broker, older epoch or number──► refused
      ├──of the controller that is known──────────────────────────────► let in
      └──of another one──► waits ──ZooKeeper is asked──► let in, or refused

An order of a new epoch is accepted only when /controller_epoch has that epoch, and its sender holds
/controller with the session of its registration under /brokers/ids. Otherwise the claim of one
request would bind the broker: after an epoch of 2^31-1 it would refuse the true controller for
ever. While one order waits, all later ones wait too, so that they keep
their order. Conditions that were checked before a wait are checked again after it.

An order is old when its own connection, or one that was opened later, has brought a higher number:
its controller has given the connection up, and repeated its orders. It is refused, and its
connection closed. So a forged number holds up the true controller until it has connected again, and
not until its epoch ends. Source: R-CTL1, R-CTL3, R-CTL4.

An order that was let in waits in a queue (`Orders`). A full order names everything that this broker
hosts, and may come in several requests (`FullOrder`, `NamedReplicas`).
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from typing import NamedTuple, Protocol

from storage_engine.broker import unexpected
from storage_engine.broker.cluster.registration import UNREGISTERED
from storage_engine.broker.settings.topic_config import TopicConfigs
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition
from storage_engine.core.ports import MetadataStore, Scheduler, ZkReply
from storage_engine.net.client_log import ClientLog
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import (
    BrokerIdZNode,
    ControllerEpochZNode,
    ControllerZNode,
)

log = ClientLog(__name__)

NO_CONTROLLER_EPOCH = ControllerEpoch(-1)
MAX_CONNECTIONS = 100
"""The most connections whose request numbers are remembered; a larger number only occurs with
forged requests."""


class Order(Protocol):
    """The fields of all requests of a controller: the sender, and the broker epoch that they are
    meant for."""

    @property
    def controller_id(self) -> BrokerId: ...

    @property
    def controller_epoch(self) -> ControllerEpoch: ...

    @property
    def broker_epoch(self) -> BrokerEpoch: ...

    @property
    def order_number(self) -> int: ...


class OrderConnection(Protocol):
    """The connection that an order came on."""

    @property
    def number(self) -> int:
        """Higher than the numbers of all connections that were opened before."""
        ...

    def close(self, reason: str) -> None: ...


class _Waiting(NamedTuple):
    order: Order
    connection: OrderConnection
    number: int
    """Shows whether ZooKeeper was asked before or after the order came."""
    carry_out: Callable[[], None]
    refuse: Callable[[ErrorCode], None]


class _Named(NamedTuple):
    """The controller that ZooKeeper names; -1 where it is not known."""

    epoch: ControllerEpoch = NO_CONTROLLER_EPOCH
    controller_id: BrokerId = BrokerId(-1)


class OrderNumbers:
    """The highest order number of each connection, unless a later connection has brought as high a
    number: a controller that keeps to the rules has only one."""

    def __init__(self) -> None:
        self._highest: list[tuple[int, int]] = []
        """(connection number, order number)"""

    def clear(self) -> None:
        self._highest.clear()

    def is_old(self, connection: int, number: int) -> bool:
        return any(later >= connection and highest > number for later, highest in self._highest)

    def note(self, connection: int, number: int) -> None:
        """Remember the number of an order that is not old."""
        if any(later >= connection and highest == number for later, highest in self._highest):
            return
        kept = [(other, n) for other, n in self._highest if other > connection or n > number]
        self._highest = sorted([*kept, (connection, number)])[-MAX_CONNECTIONS:]


class OrderGate:
    """Admits or refuses the orders that reach one broker."""

    def __init__(
        self, metadata_store: MetadataStore, broker_epoch: Callable[[], BrokerEpoch]
    ) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = Flows()
        self._broker_epoch = broker_epoch
        self.controller_epoch = NO_CONTROLLER_EPOCH
        """The highest controller epoch that ZooKeeper has confirmed."""
        self.controller_id = BrokerId(-1)
        self.numbers = OrderNumbers()
        """The order numbers of `controller_epoch`."""
        self._waiting: deque[_Waiting] = deque()
        self._arrived = 0
        """The number of orders that have arrived."""

    def admit(
        self,
        order: Order,
        connection: OrderConnection,
        carry_out: Callable[[], None],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        """Admits or refuses a request, now or later; exactly one of the two callbacks is called."""
        self._arrived += 1
        self._waiting.append(_Waiting(order, connection, self._arrived, carry_out, refuse))
        if len(self._waiting) == 1:
            self._go_on(None, 0)

    def refusal(self, order: Order, connection: OrderConnection) -> ErrorCode:
        """NONE when the order is still to be carried out; checked again after every wait. Remembers
        the newest order."""
        broker_epoch = self._broker_epoch()
        if broker_epoch == UNREGISTERED or order.broker_epoch != broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if (order.controller_epoch, order.controller_id) != (
            self.controller_epoch,
            self.controller_id,
        ):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.numbers.is_old(connection.number, order.order_number):
            return ErrorCode.REQUEST_TIMED_OUT
        self.numbers.note(connection.number, order.order_number)
        return ErrorCode.NONE

    def _go_on(self, named: _Named | None, asked_at: int) -> None:
        """`named` is an answer for the first `asked_at` orders that have arrived."""
        while self._waiting:
            first = self._waiting[0]
            if self._is_news(first.order):
                if named is None or first.number > asked_at:
                    self._ask()
                    return
                if not self._learn(first.order, named):
                    self._waiting.popleft()
                    self._refuse_news(first, named)
                    continue
            self._waiting.popleft()
            self._judge(first)

    def _judge(self, waiting: _Waiting) -> None:
        code = self.refusal(waiting.order, waiting.connection)
        if code is ErrorCode.NONE:
            _call(waiting.carry_out)
            return
        _call(lambda: waiting.refuse(code))
        if code is ErrorCode.REQUEST_TIMED_OUT:
            # It is not used any more, or its controller repeats the order on a later one.
            _call(lambda: waiting.connection.close("its order is older than another"))

    def _is_news(self, order: Order) -> bool:
        """Whether the order must be checked with ZooKeeper; False where it is refused anyway."""
        return (
            order.controller_epoch > self.controller_epoch
            and order.broker_epoch == self._broker_epoch() != UNREGISTERED
        )

    def _learn(self, order: Order, named: _Named) -> bool:
        if named != (order.controller_epoch, order.controller_id):
            return False
        self.controller_epoch, self.controller_id = named
        self.numbers.clear()
        return True

    def _refuse_news(self, waiting: _Waiting, named: _Named) -> None:
        order = waiting.order
        log.warning(
            str(order.controller_id),
            "order refused: it says that broker %d is the controller of epoch %d, ZooKeeper names "
            "broker %d and epoch %d",
            order.controller_id,
            order.controller_epoch,
            named.controller_id,
            named.epoch,
        )
        # Its sender may have been elected since: it sends the order again.
        is_old = order.controller_epoch < named.epoch
        code = ErrorCode.STALE_CONTROLLER_EPOCH if is_old else ErrorCode.REQUEST_TIMED_OUT
        _call(lambda: waiting.refuse(code))

    # --- the controller in ZooKeeper ---

    def _ask(self) -> None:
        self._flows.start(self._read_named(), partial(self._answered, self._arrived))

    def _answered(self, asked_at: int, named: _Named) -> None:
        self._go_on(named, asked_at)

    def _read_named(self) -> Flow[_Named]:
        """Read the controller and check that its session is that of its registration."""
        epoch = yield from self._zookeeper.get(ControllerEpochZNode.PATH)
        controller = yield from self._zookeeper.get(ControllerZNode.PATH)
        named = _named(epoch, controller)
        if named.controller_id < 0:
            return _Named()
        broker = yield from self._zookeeper.exists(BrokerIdZNode.path(named.controller_id))
        is_registered = broker.ok and _session(broker) == _session(controller) != 0
        return named if is_registered else _Named()


def _named(epoch: ZkReply, controller: ZkReply) -> _Named:
    if not epoch.ok or not controller.ok:
        return _Named()
    try:
        return _Named(
            ControllerEpochZNode.decode(epoch.data),
            ControllerZNode.decode(controller.data).broker_id,
        )
    except ZnodeFormatError as failure:
        log.error("", "no controller's orders are accepted: %s", failure)
        return _Named()


def _session(reply: ZkReply) -> int:
    return reply.stat.ephemeral_owner if reply.stat is not None else 0


def _call(work: Callable[[], None]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever it is, the next order has its turn
        unexpected.report("order of the controller", error)


STEPS_PER_TURN = 8
"""The steps in one turn, mostly a partition each: 0.1 ms (a change of role)."""

FILES_STEPS = STEPS_PER_TURN
"""A log that is made or deleted counts as so many: it takes 2 ms, and some more on a busy disk."""

Steps = Callable[[], Iterator[int]]
"""An order, begun by the call; it may be interrupted where it yields how many steps it has done."""

Refuse = Callable[[ErrorCode], None]


class _Queued(NamedTuple):
    topics: set[str]
    order: Steps
    refuse: Refuse


class Orders:
    """Carries out the controller's orders to this broker in the order in which they came.

    An order waits until the settings of its topics are known, and later orders wait too. An order
    that fails is answered with an error and delays no other. A long order, which may open a
    thousand logs, lets the event loop do other work in between: the session with ZooKeeper depends
    on that, too.
    """

    def __init__(self, configs: TopicConfigs, scheduler: Scheduler) -> None:
        self._configs = configs
        self._scheduler = scheduler
        self._queue: deque[_Queued] = deque()
        self._busy = False

    def submit(self, topics: set[str], order: Steps, refuse: Refuse) -> None:
        """Carry out `order` once all earlier ones are and the settings of `topics` are known;
        `refuse` answers it when it fails."""
        self._queue.append(_Queued(topics, order, refuse))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        queued = self._queue.popleft()
        self._busy = True
        # In a turn of its own: a long queue of orders must not become a deep stack.
        self._configs.ensure(
            queued.topics,
            lambda: self._scheduler.call_soon(
                lambda: self._carry_out(queued.order(), queued.refuse)
            ),
        )

    def _carry_out(self, steps: Iterator[int], refuse: Refuse) -> None:
        goes_on = False
        try:
            goes_on = _advance(steps)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next order has its turn
            refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            unexpected.report("order of the controller", error)
        finally:
            if goes_on:
                self._scheduler.call_soon(lambda: self._carry_out(steps, refuse))
            else:
                self._busy = False
                if self._queue:
                    self._next()


def _advance(steps: Iterator[int]) -> bool:
    """Does the steps of one turn; returns False when there are no more."""
    return any(done >= STEPS_PER_TURN for done in accumulate(steps))


class OrderPart(Order, Protocol):
    """A request that may be one part of an order."""

    @property
    def part(self) -> int: ...


class FullOrder:
    """Tracks which parts of the newest full order have arrived. A part counts only after the parts
    before it, and nothing counts as missing before the last part has arrived.

    The controller sends each part after the answer to the one before. When an answer is missing, it
    sends all parts again, under another number.
    """

    def __init__(self) -> None:
        self._order: tuple[int, int, int] | None = None
        self._parts = 0

    def expects(self, request: OrderPart) -> bool:
        """Whether this is the first part of an order, or the next of the one that was begun."""
        return request.part == 0 or (
            self._order == _name_of(request) and request.part == self._parts
        )

    def took(self, request: OrderPart) -> None:
        """Note that the part was carried out."""
        self._order, self._parts = _name_of(request), request.part + 1


def _name_of(request: OrderPart) -> tuple[int, int, int]:
    return request.controller_id, request.controller_epoch, request.order_number


class NamedReplicas(FullOrder):
    """Tracks the partitions named in the parts, too: replicas that a full request does not name are
    stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: set[TopicPartition] = set()

    def note(self, request: OrderPart, partitions: set[TopicPartition]) -> None:
        """Add the partitions of a part that was carried out."""
        self.took(request)
        if request.part == 0:
            self.partitions = set()
        self.partitions |= partitions
