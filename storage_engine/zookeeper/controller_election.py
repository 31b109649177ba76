"""Which broker is the controller: the ephemeral /controller, and the epoch that fences its
predecessors.

Rule: the node is created and /controller_epoch raised in one multi, so that whoever owns the node
owns the epoch; a controller that can't be sure of its node has resigned.

    FOLLOWING ──/controller gone──► RUNNING ──multi done──► ELECTED
        ▲                             │ ▲                      │
        └────── another was first ────┘ └── session lost, ─────┘
                                            node gone or another's

A broker that has resigned under an epoch never acts under it again, since its orders are numbered
within the epoch: where the node is still its own, it gives the node away and runs for a new one.
Others may have written into /controller_epoch, so that an epoch is above all that this broker has
acted under or taken orders of, too: brokers refuse the orders of an older one.

A node that is no session's would stay for ever: it is removed, with what is below it.

Source: R-CTL1, R-CTL5. Only `core.ports` is used, so that it runs in the simulation too.
"""

import functools
import logging
from collections.abc import Callable

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
from storage_engine.zookeeper.subtree import remove_subtree
from storage_engine.zookeeper.znode_json import EPOCHS, ZnodeFormatError
from storage_engine.zookeeper.znodes import (
    INITIAL_CONTROLLER_EPOCH,
    ControllerEpochZNode,
    ControllerZNode,
)

log = logging.getLogger(__name__)

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
        # Answers and watches of an earlier attempt are recognised by this number and ignored.
        self._attempt = 0

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
        self._attempt += 1
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
        self._attempt += 1
        attempt = self._attempt
        self._remove_node(version)
        self._scheduler.call_later(GIVEN_UP_DELAY_MS, lambda: self._on_watch(attempt))

    def _remove_node(self, version: int) -> None:
        # The deletion depends on the epoch: if another broker has taken over already, its node
        # stays.
        self._metadata_store.multi(
            [
                ZkOp(kind=ZkOpKind.CHECK, path=ControllerEpochZNode.PATH, version=version),
                ZkOp(kind=ZkOpKind.DELETE, path=ControllerZNode.PATH),
            ],
            lambda reply: log.info("controller node given up status=%s", reply.status.value),
        )

    def reconsider(self) -> None:
        """Resign because a broker or ZooKeeper has named a newer epoch, and read the node again."""
        self._resign("a newer epoch was seen")
        self._check_node()

    def _on_session_state(self, state: SessionState) -> None:
        match state:
            case SessionState.LOST:
                self._attempt += 1
                self._controller_id = None
                self._resign("session lost")
            case SessionState.CONNECTED:
                self._check_node()
            case SessionState.SUSPENDED:
                # The node is still ours; writes are fenced by the epoch, acks by the lease.
                pass

    # ---- attempts ----

    def _check_node(self) -> None:
        """Read who the controller is, and watch the node for as long as it exists."""
        if not self._running:
            return
        self._attempt += 1
        self._metadata_store.get(
            ControllerZNode.PATH,
            self._of_attempt(self._on_controller),
            watch=functools.partial(self._on_watch, self._attempt),
        )

    def _on_watch(self, attempt: int) -> None:
        if attempt == self._attempt:
            self._check_node()

    def _on_controller(self, reply: ZkReply) -> None:
        match reply.status:
            case ZkStatus.OK:
                owner = reply.stat.ephemeral_owner if reply.stat else 0
                if owner == 0:
                    self._controller_id = None
                    self._resign("its node is no session's")
                    self._read_epoch(self._remove_foreign_node)
                elif owner == self._metadata_store.session_id:
                    self._on_own_node(reply)
                else:
                    self._follow(reply.data)
            case ZkStatus.NO_NODE:
                self._controller_id = None
                self._resign("its node is gone")
                self._read_epoch(self._run)
            case _:
                self._look_later()

    def _on_own_node(self, reply: ZkReply) -> None:
        """React to this session's own node, seen again, or created by a multi whose answer was
        lost."""
        self._set_right(reply)
        if not self._elected:
            node = reply.stat.czxid if reply.stat else -1
            self._read_epoch(functools.partial(self._become_controller, node))

    def _set_right(self, reply: ZkReply) -> None:
        """Correct the node where others wrote into it; brokers take orders only of the controller
        that it names."""
        try:
            if ControllerZNode.decode(reply.data).broker_id == self._broker_id:
                return
        except ZnodeFormatError as error:
            log.error("%s", error)
        log.error("the controller's node names another broker: set right")
        node = ControllerZNode(broker_id=self._broker_id, timestamp_ms=self._clock.wall_ms())
        version = reply.stat.version if reply.stat else -1
        self._metadata_store.set(ControllerZNode.PATH, node.encode(), version, lambda _reply: None)

    def _follow(self, data: bytes) -> None:
        try:
            self._controller_id = ControllerZNode.decode(data).broker_id
        except ZnodeFormatError as error:
            log.warning("%s", error)
            self._controller_id = None
        self._resign("another has the node")

    def _remove_foreign_node(self, _epoch: ControllerEpoch, version: int) -> None:
        """Remove the node that no session owns. It is read once more after the epoch: an election
        since then raises the epoch, so that its node stays."""
        guard = ZkOp(kind=ZkOpKind.CHECK, path=ControllerEpochZNode.PATH, version=version)

        def on_controller(reply: ZkReply) -> None:
            if not reply.ok or reply.stat is None or reply.stat.ephemeral_owner != 0:
                self._check_node()
                return
            log.error("%s was taken by no broker: removed", ControllerZNode.PATH)
            remove_subtree(
                self._metadata_store,
                ControllerZNode.PATH,
                self._of_attempt(on_removed),
                guard=[guard],
                version=reply.stat.version,
            )

        def on_removed(reply: ZkReply) -> None:
            if reply.ok:
                self._check_node()
            else:
                self._look_later(GIVEN_UP_DELAY_MS)

        self._metadata_store.get(ControllerZNode.PATH, self._of_attempt(on_controller))

    def _read_epoch(self, then: Callable[[ControllerEpoch, int], None]) -> None:
        self._metadata_store.get(
            ControllerEpochZNode.PATH,
            self._of_attempt(functools.partial(self._on_epoch, then)),
        )

    def _on_epoch(self, then: Callable[[ControllerEpoch, int], None], reply: ZkReply) -> None:
        match reply.status:
            case ZkStatus.OK:
                try:
                    epoch = ControllerEpochZNode.decode(reply.data)
                except ZnodeFormatError as error:
                    log.error(
                        "no controller can be elected: %s; set it to a number above that of the "
                        "last controller, which the brokers' logs name",
                        error,
                    )
                    self._look_later(UNREADABLE_DELAY_MS)
                    return
                then(epoch, reply.stat.version if reply.stat else -1)
            case ZkStatus.NO_NODE:
                # The cluster's first election.
                self._metadata_store.create(
                    ControllerEpochZNode.PATH,
                    ControllerEpochZNode.encode(INITIAL_CONTROLLER_EPOCH),
                    self._of_attempt(self._on_epoch_created),
                )
            case _:
                self._look_later()

    def _on_epoch_created(self, reply: ZkReply) -> None:
        if reply.status in (ZkStatus.OK, ZkStatus.NODE_EXISTS):
            self._check_node()
        else:
            self._look_later()

    def _run(self, epoch: ControllerEpoch, version: int) -> None:
        new_epoch = ControllerEpoch(max(epoch, self._own_epoch, self._known_epoch()) + 1)
        if new_epoch not in EPOCHS:
            log.error(
                "no controller can be elected: epoch %d is the last that %s can hold; set it to a "
                "lower number while no broker runs",
                new_epoch - 1,
                ControllerEpochZNode.PATH,
            )
            self._look_later(UNREADABLE_DELAY_MS)
            return
        node = ControllerZNode(broker_id=self._broker_id, timestamp_ms=self._clock.wall_ms())
        self._metadata_store.multi(
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
            ],
            self._of_attempt(self._on_vote),
        )

    def _on_vote(self, reply: ZkReply) -> None:
        if reply.status is ZkStatus.UNKNOWN:
            self._look_later()
        else:
            # Whether it was won or lost, the node says; reading it sets the watch as well.
            self._check_node()

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

    # ---- helpers ----

    def _look_later(self, delay_ms: int = RETRY_DELAY_MS) -> None:
        """Read the node again after an answer without content; a change of the session's state does
        it sooner."""
        attempt = self._attempt
        self._scheduler.call_later(delay_ms, lambda: self._on_watch(attempt))

    def _of_attempt(self, then: Callable[[ZkReply], None]) -> Callable[[ZkReply], None]:
        """Return `then` wrapped so that it is not called when a newer attempt has begun by the time
        of the answer."""
        attempt = self._attempt

        def on_reply(reply: ZkReply) -> None:
            if attempt == self._attempt:
                then(reply)

        return on_reply
