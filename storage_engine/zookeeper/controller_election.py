"""The election of the controller: the ephemeral node /controller, and the epoch that fences earlier
controllers.

The node is created and /controller_epoch raised in one multi, so that whoever owns the node owns
the epoch; a controller that can't be sure of its node has resigned.

    FOLLOWING ──/controller gone──► RUNNING ──multi done──► ELECTED
        ▲                             │ ▲                      │
        └────── another was first ────┘ └── session lost, ─────┘
                                            node gone or another's

A broker that has resigned under an epoch never acts under it again, since its orders are numbered
within the epoch: where the node is still its own, it gives the node away and takes part again for a
new one. Somebody may have written into /controller_epoch, so a new epoch is also above all under
which this broker has acted or accepted orders: brokers refuse the orders of an older one.

A node that no session owns would stay for ever: it is removed, with its children.

Source: R-CTL1, R-CTL5. Only `core.ports` is used, so that it runs in the simulation too.
"""

import logging
from collections.abc import Callable
from functools import partial

from storage_engine.core.ids import BrokerId, ControllerEpoch
from storage_engine.core.ports import (
    Clock,
    MetadataStore,
    Scheduler,
    SessionState,
    ZkOp,
    ZkOpKind,
    ZkReply,
    ZkStatus,
)
from storage_engine.zookeeper.flow import Flow, Flows, Watch, ZookeeperFlows, remove_subtree
from storage_engine.zookeeper.znode_json import EPOCHS, ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import (
    INITIAL_CONTROLLER_EPOCH,
    ControllerEpochZNode,
    ControllerZNode,
)

log = logging.getLogger(__name__)

AT_ONCE = 0
"""Instead of a pause: what was read is no longer so."""
RETRY_DELAY_MS = 100
"""The delay after an answer without content: long enough to avoid a busy loop, short compared with
a failover."""
UNREADABLE_DELAY_MS = 5_000
"""The delay before an epoch that could not be decoded is read again: only a person can repair
it."""
GIVEN_UP_DELAY_MS = 1_000
"""The delay before a broker that has given the node away takes part again: others come first."""


class ControllerElection:
    """Takes part in elections as long as the broker lives. All calls and callbacks are on the
    loop."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        broker_id: BrokerId,
        clock: Clock,
        scheduler: Scheduler,
        *,
        on_elected: Callable[[ControllerEpoch, int], None],
        on_resigned: Callable[[], None],
        known_epoch: Callable[[], ControllerEpoch] = lambda: INITIAL_CONTROLLER_EPOCH,
    ) -> None:
        """`on_elected(controller_epoch, epoch_znode_version)`: the version of /controller_epoch
        that every write of this controller checks. `on_resigned` follows each `on_elected` once.
        `known_epoch` returns the highest epoch whose orders this broker has accepted."""
        self._metadata_store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._broker_id = broker_id
        self._clock = clock
        self._scheduler = scheduler
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._running = False
        self._elected = False
        self._epoch_version = -1
        self._known_epoch = known_epoch
        self._own_epoch = INITIAL_CONTROLLER_EPOCH
        """The highest epoch under which this broker has acted."""
        self._own_node = -1
        """The creation id of the node by which it was elected last."""
        self._controller_id: BrokerId | None = None
        self._attempt = Flows()

    @property
    def is_controller(self) -> bool:
        return self._elected

    @property
    def controller_id(self) -> BrokerId | None:
        """The controller's id as last seen; None when there is none or it is not known."""
        return self._controller_id

    def start(self) -> None:
        """Begin to take part; called once."""
        self._running = True
        self._metadata_store.add_state_listener(self._on_session_state)
        self._check_node()

    def stop(self) -> None:
        """Resign and take part no more, so that another broker takes over at once."""
        self._running = False
        self._attempt.close()
        if not self._elected:
            return
        self._remove_node(self._epoch_version)
        self._resign("stopped")

    def give_up(self) -> None:
        """Resign, so that another broker takes over; take part again only after others had the
        chance."""
        if not self._elected:
            return
        version = self._epoch_version
        self._resign("it can't do its work")
        self._give_node_away(version)

    def _give_node_away(self, version: int) -> None:
        attempt = self._begin_attempt()
        self._remove_node(version)
        self._scheduler.call_later(GIVEN_UP_DELAY_MS, partial(self._check_again, attempt))

    def _remove_node(self, version: int) -> None:
        # The deletion depends on the epoch: if another broker has taken over already, its node
        # stays.
        self._metadata_store.multi(
            [
                ZkOp(kind=ZkOpKind.CHECK, path=ControllerEpochZNode.PATH, version=version),
                ZkOp(kind=ZkOpKind.DELETE, path=ControllerZNode.PATH),
            ],
            lambda reply: log.info("controller znode given up status=%s", reply.status.value),
        )

    def reconsider(self) -> None:
        """Resign because a broker or ZooKeeper has named a newer epoch, and read the node again."""
        self._resign("a newer epoch was seen")
        self._check_node()

    def _on_session_state(self, state: SessionState) -> None:
        match state:
            case SessionState.LOST:
                self._attempt.close()
                self._controller_id = None
                self._resign("session lost")
            case SessionState.CONNECTED:
                self._check_node()
            case SessionState.SUSPENDED:
                # The node is still ours; writes are fenced by the epoch, acks by the lease.
                pass

    def _check_node(self) -> None:
        """Begin another attempt: read who the controller is."""
        if self._running:
            attempt = self._begin_attempt()
            again = partial(self._check_again, attempt)
            attempt.start(self._run(again), partial(self._check_after, again))

    def _begin_attempt(self) -> Flows:
        """Drop what answers and watches of the one before may still bring."""
        self._attempt.close()
        self._attempt = Flows()
        return self._attempt

    def _check_again(self, attempt: Flows) -> None:
        if not attempt.closed:
            self._check_node()

    def _check_after(self, again: Callable[[], None], delay_ms: int | None) -> None:
        if delay_ms == AT_ONCE:
            again()
        elif delay_ms is not None:
            self._scheduler.call_later(delay_ms, again)

    def _run(self, watch: Watch) -> Flow[int | None]:
        """Read who the controller is, with the watch on its node, and do what follows. The pause
        before the next reading; None where the watch is enough."""
        found = yield from self._zookeeper.get(ControllerZNode.PATH, watch)
        if not found.ok and found.status is not ZkStatus.NO_NODE:
            return RETRY_DELAY_MS
        owner = found.stat.ephemeral_owner if found.stat else 0
        if owner != 0 and owner == self._metadata_store.session_id:
            self._correct_node(found)
            if self._elected:
                return None
        elif owner != 0:
            self._follow(found.data)
            return None
        else:
            self._controller_id = None
            self._resign("its node is no session's" if found.ok else "its node is gone")
        epoch = yield from self._zookeeper.get(ControllerEpochZNode.PATH)
        if epoch.status is ZkStatus.NO_NODE:
            return (yield from self._create_epoch())
        if not epoch.ok:
            return RETRY_DELAY_MS
        try:
            named = ControllerEpochZNode.decode(epoch.data)
        except ZnodeFormatError as error:
            log.error(
                "no controller can be elected: %s; set it to a number above that of the last "
                "controller, which the brokers' logs name",
                error,
            )
            return UNREADABLE_DELAY_MS
        version = epoch.stat.version if epoch.stat else -1
        if not found.ok:
            return (yield from self._vote(named, version))
        if owner == 0:
            return (yield from self._remove_foreign_node(version))
        self._become_controller(found.stat.czxid if found.stat else -1, named, version)
        return None

    def _create_epoch(self) -> Flow[int]:
        """Create the epoch's node, before the first election of a cluster."""
        initial = ControllerEpochZNode.encode(INITIAL_CONTROLLER_EPOCH)
        created = yield from self._zookeeper.create(ControllerEpochZNode.PATH, initial)
        is_there = created.status in (ZkStatus.OK, ZkStatus.NODE_EXISTS)
        return AT_ONCE if is_there else RETRY_DELAY_MS

    def _correct_node(self, found: ZkReply) -> None:
        """Correct the node where others wrote into it; brokers take orders only of the controller
        that it names."""
        try:
            if ControllerZNode.decode(found.data).broker_id == self._broker_id:
                return
        except ZnodeFormatError as error:
            log.error("%s", error)
        log.error("the controller's znode names another broker: corrected")
        node = ControllerZNode(broker_id=self._broker_id, timestamp_ms=self._clock.wall_ms())
        version = found.stat.version if found.stat else -1
        self._metadata_store.set(ControllerZNode.PATH, node.encode(), version, lambda _reply: None)

    def _follow(self, data: bytes) -> None:
        try:
            self._controller_id = ControllerZNode.decode(data).broker_id
        except ZnodeFormatError as error:
            log.warning("%s", error)
            self._controller_id = None
        self._resign("another has the node")

    def _remove_foreign_node(self, epoch_version: int) -> Flow[int]:
        """Remove the node that no session owns. It is read once more after the epoch: an election
        since then raises the epoch, so that its node stays."""
        found = yield from self._zookeeper.get(ControllerZNode.PATH)
        if not found.ok or found.stat is None or found.stat.ephemeral_owner != 0:
            return AT_ONCE
        log.error("the znode %s had no owner: removed", ControllerZNode.PATH)
        epoch = ControllerEpochZNode.PATH
        guard = [ZkOp(kind=ZkOpKind.CHECK, path=epoch, version=epoch_version)]
        removed = yield from remove_subtree(
            self._zookeeper, ControllerZNode.PATH, guard=guard, version=found.stat.version
        )
        return AT_ONCE if removed.ok else GIVEN_UP_DELAY_MS

    def _vote(self, epoch: ControllerEpoch, version: int) -> Flow[int]:
        new_epoch = ControllerEpoch(max(epoch, self._own_epoch, self._known_epoch()) + 1)
        if new_epoch not in EPOCHS:
            log.error(
                "no controller can be elected: epoch %d is the last that %s can hold; set it to a "
                "lower number while no broker runs",
                new_epoch - 1,
                ControllerEpochZNode.PATH,
            )
            return UNREADABLE_DELAY_MS
        node = ControllerZNode(broker_id=self._broker_id, timestamp_ms=self._clock.wall_ms())
        voted = yield from self._zookeeper.multi(
            [
                ZkOp(
                    kind=ZkOpKind.CREATE,
                    path=ControllerZNode.PATH,
                    data=node.encode(),
                    ephemeral=True,
                ),
                ZkOp(
                    kind=ZkOpKind.SET,
                    path=ControllerEpochZNode.PATH,
                    data=ControllerEpochZNode.encode(new_epoch),
                    version=version,
                ),
            ]
        )
        # Whether it was won or lost, the node says; reading it sets the watch as well.
        return RETRY_DELAY_MS if voted.status is ZkStatus.UNKNOWN else AT_ONCE

    def _become_controller(self, node: int, epoch: ControllerEpoch, version: int) -> None:
        # No broker can have raised the epoch since: that takes the node, which this session has.
        # Others may have written to it all the same.
        if node == self._own_node or epoch <= max(self._own_epoch, self._known_epoch()):
            self._give_node_away(version)
            return
        self._own_node, self._own_epoch = node, epoch
        log.info("controller elected broker=%d controller_epoch=%d", self._broker_id, epoch)
        self._elected = True
        self._epoch_version = version
        self._controller_id = self._broker_id
        self._on_elected(epoch, version)

    def _resign(self, reason: str) -> None:
        if not self._elected:
            return
        log.info("controller resigned broker=%d reason=%s", self._broker_id, reason)
        self._elected = False
        self._epoch_version = -1
        self._on_resigned()
