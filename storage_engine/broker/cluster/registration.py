"""This broker's entry under /brokers/ids, kept there as long as the broker lives.

Each registration is a new incarnation, whose number (broker epoch) is the creation id of the node.
A broker whose logs may have lost their tail registers that, with the incarnation in which it came
back (`election_rules.suspects`). Foreign changes of the node are overwritten; a node that somebody
removes is created again, as another incarnation. When the id is in use, the broker waits once for
the session of its owner to expire; after that it is an error. Source: R-REP11, R-CTL4.
"""

import logging
from collections.abc import Callable
from dataclasses import replace

from storage_engine.broker import unexpected
from storage_engine.core.errors import HeadraceError
from storage_engine.core.ids import TAIL_LOST_NOW, BrokerEpoch
from storage_engine.core.ports import Clock, MetadataStore, Scheduler, SessionState, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows, pause, remove_subtree
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode

log = logging.getLogger(__name__)


RETRY_MS = 200
GRACE_MS = 2000
"""How long, in addition to the session timeout, a starting broker waits for the znode of its
predecessor to go."""

UNREGISTERED = BrokerEpoch(-1)
"""The epoch of a broker without an entry: it accepts nothing that is meant for an incarnation."""


def leaving(broker_epoch: int) -> int:
    """The epoch that an incarnation names in controlled shutdown: it still counts where it is in
    the ISR, but no leader adds it again. The function is its own inverse."""
    return -2 - broker_epoch


class BrokerIdInUseError(HeadraceError):
    """Another live broker has this id."""


class Registration:
    """Registers, and registers again after a lost session."""

    def __init__(
        self,
        node: BrokerIdZNode,
        *,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        clock: Clock,
        session_timeout_ms: int,
    ) -> None:
        self._node = node
        self._path = BrokerIdZNode.path(node.broker_id)
        self._metadata_store = metadata_store
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = Flows()
        self._scheduler = scheduler
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._deadline_ms = 0
        self._registered_session = 0
        self._written = b""
        """The content that this broker has written to the node."""
        self._is_changed = False
        """Whether this broker has changed what the node is to say, and not written it yet."""
        self._reads = 0
        """The number of reads of the node so far: only the newest one counts."""
        self._busy = False
        self.is_leaving = False
        """True in a controlled shutdown."""
        self.broker_epoch = UNREGISTERED
        """The broker epoch; UNREGISTERED while the broker is not registered."""
        self._on_registered: Callable[[BrokerEpoch], None]
        self._on_refused: Callable[[BrokerIdInUseError], None]
        self._on_lost: Callable[[], None]

    def start(
        self,
        *,
        on_registered: Callable[[BrokerEpoch], None],
        on_refused: Callable[[BrokerIdInUseError], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Register; `on_registered(broker epoch)` is called after this and every later time,
        `on_lost` whenever the registration has gone with its session. `on_refused`: the id belongs
        to another live broker."""
        self._on_registered = on_registered
        self._on_refused = on_refused
        self._on_lost = on_lost
        self._metadata_store.add_state_listener(self._on_state)
        self._begin()

    def close(self) -> None:
        self._flows.close()

    def leave(self) -> None:
        """Begins a controlled shutdown: this broker still follows, but no leader adds it to an ISR
        again."""
        self.is_leaving = True

    def set_cordoned(self, is_cordoned: bool) -> None:
        """Registers whether this broker takes new replicas, now and from now on; its incarnation
        stays."""
        if is_cordoned == self._node.is_cordoned:
            return
        self._node = replace(self._node, is_cordoned=is_cordoned)
        self._is_changed = True
        if self.broker_epoch != UNREGISTERED and not self._busy:
            self._look_after()

    @property
    def fetch_epoch(self) -> int:
        """The epoch that this broker names in its fetches."""
        return leaving(self.broker_epoch) if self.is_leaving else self.broker_epoch

    def _on_state(self, state: SessionState) -> None:
        if self._flows.closed:
            return
        if state is SessionState.LOST:
            self.broker_epoch = UNREGISTERED
            self._on_lost()
            return
        is_new = self._metadata_store.session_id != self._registered_session
        if state is SessionState.CONNECTED and is_new:
            self._begin()

    def _begin(self) -> None:
        # Each session anew: the node that is in the way may be that of the session before.
        self._deadline_ms = self._clock.monotonic_ms() + self._session_timeout_ms + GRACE_MS
        if not self._busy:
            self._busy = True
            self._flows.start(self._register())

    def _register(self) -> Flow[None]:
        """Return when the node is this session's, or has been another live broker's for too
        long."""
        while True:
            self._written = self._node.encode()
            created = yield from self._zookeeper.create(
                self._path, self._written, ephemeral=True, make_parents=True
            )
            if created.ok:
                self._is_changed = self._written != self._node.encode()
            if created.ok or created.status is ZkStatus.NODE_EXISTS:
                seen = yield from self._zookeeper.exists(self._path)
                stat = seen.stat if seen.ok else None
                if stat is not None and stat.ephemeral_owner == 0:
                    # No broker lives by it: it would stay for ever.
                    log.error(
                        "the znode of broker id %d had no owner: removed", self._node.broker_id
                    )
                    yield from remove_subtree(self._zookeeper, self._path, version=stat.version)
                elif stat is not None and stat.ephemeral_owner == self._metadata_store.session_id:
                    if self._pass_on(BrokerEpoch(stat.czxid)):
                        return
                elif stat is not None and self._clock.monotonic_ms() > self._deadline_ms:
                    self._busy = False
                    self._on_refused(
                        BrokerIdInUseError(
                            f"broker id {self._node.broker_id} is in use by another live broker: "
                            "give this one another broker.id, or stop the other"
                        )
                    )
                    return
            yield from pause(self._scheduler, RETRY_MS)

    def _pass_on(self, broker_epoch: BrokerEpoch) -> bool:
        """Report the registration; return False when `on_registered` has failed."""
        self._busy = False
        self._registered_session = self._metadata_store.session_id
        self.broker_epoch = broker_epoch
        if self._node.tail_lost_epoch == TAIL_LOST_NOW:
            self._node = replace(self._node, tail_lost_epoch=broker_epoch)
        log.info("registered broker=%d epoch=%d", self._node.broker_id, broker_epoch)
        self._look_after()
        try:
            self._on_registered(broker_epoch)
        except Exception as error:  # noqa: BLE001 - whatever it is, what follows is done again
            self._busy = True
            unexpected.report(f"registration of broker {self._node.broker_id}", error)
            return False
        return True

    # --- changes of the node ---

    def _look_after(self) -> None:
        """Read the node, and again whenever it changes, as long as it is this registration's."""
        if self._is_changed:
            self._written = self._node.encode()
        self._reads += 1
        self._flows.start(self._read(self._reads))

    def _read(self, number: int) -> Flow[None]:
        def is_over() -> bool:
            is_old = number != self._reads or self.broker_epoch == UNREGISTERED
            return self._flows.closed or self._busy or is_old

        def changed() -> None:
            if not is_over():
                self._look_after()

        reply = yield from self._zookeeper.get(self._path, changed)
        if is_over():
            return
        if reply.status is ZkStatus.UNKNOWN:
            self._scheduler.call_later(RETRY_MS, changed)
        elif reply.stat is None or reply.stat.czxid != self.broker_epoch:
            log.error(
                "registration of broker %d was removed: registering again", self._node.broker_id
            )
            self.broker_epoch = UNREGISTERED
            self._on_lost()
            self._begin()
        elif reply.data != self._written:
            if not self._is_changed:
                log.error("registration of broker %d was changed: restored", self._node.broker_id)
            content = self._written
            written = yield from self._zookeeper.set(self._path, content, reply.stat.version)
            if written.ok:
                self._is_changed &= content != self._written
            elif not is_over():
                self._scheduler.call_later(RETRY_MS, changed)
        else:
            self._is_changed = False
