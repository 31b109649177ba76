"""Where the brokers are, and which of them take new replicas, as their registrations say.

Each broker watches the registrations of all: any may place replicas, and the orders of the
controller have no room for this, since brokers of release 0.1.0 read them. The place of a broker
that has gone is kept, because the controller may not have told this broker yet. Source: R-REP13.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import BrokerId, TopicPartition
from storage_engine.core.placement import BrokerPlace, Places, sharing_a_machine
from storage_engine.core.ports import MetadataStore, Scheduler, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, NewestWatches, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import BrokerIdZNode

log = logging.getLogger(__name__)

RETRY_MS = 200

KEPT_MAX = 1_000
"""The most places that are kept of brokers which have gone."""

_PARENT = BrokerIdZNode.PARENT


class BrokerPlaces:
    """The places of the registered brokers."""

    def __init__(self, metadata_store: MetadataStore, scheduler: Scheduler) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._scheduler = scheduler
        self._flows = Flows()
        self._watches = NewestWatches(self._flows)
        self._places: dict[BrokerId, BrokerPlace] = {}
        self._watched: set[BrokerId] = set()
        """The brokers whose registrations are read again whenever they change."""
        self._is_started = False

    def start(self) -> None:
        """Begin to watch; later calls do nothing."""
        if not self._is_started:
            self._is_started = True
            self._list_again()

    def close(self) -> None:
        self._flows.close()

    def of(self, brokers: Iterable[BrokerId]) -> dict[BrokerId, BrokerPlace]:
        """Return the places of these brokers. Raises a retriable KafkaError while one of them is
        not known: its replicas might share a machine."""
        found = {}
        for broker in brokers:
            if broker not in self._places:
                raise KafkaError(
                    f"the machine of broker {broker} is not known yet: ask again",
                    ErrorCode.NOT_CONTROLLER,
                )
            found[broker] = self._places[broker]
        return found

    def known(self) -> dict[BrokerId, BrokerPlace]:
        """Return all places that are known, those of brokers that have gone among them."""
        return dict(self._places)

    def _list_again(self) -> None:
        self._flows.start(self._list())

    def _list(self) -> Flow[None]:
        while True:
            watch = self._watches.newest(_PARENT, self._list_again)
            listed = yield from self._zookeeper.children(_PARENT, watch)
            if listed.ok:
                break
            yield from pause(self._scheduler, RETRY_MS)
        registered = BrokerIdZNode.ids(listed.children)
        self._forget_some(set(registered))
        for broker in registered:
            if broker not in self._watched:
                self._watched.add(broker)
                self._read_again(broker)

    def _forget_some(self, registered: set[BrokerId]) -> None:
        gone = [broker for broker in self._places if broker not in registered]
        for broker in gone[: max(0, len(gone) - KEPT_MAX)]:
            del self._places[broker]

    def _read_again(self, broker: BrokerId) -> None:
        self._flows.start(self._read(broker))

    def _read(self, broker: BrokerId) -> Flow[None]:
        path = BrokerIdZNode.path(broker)
        while True:
            watch = self._watches.newest(path, partial(self._read_again, broker))
            found = yield from self._zookeeper.get(path, watch)
            if found.status is not ZkStatus.UNKNOWN:
                break
            yield from pause(self._scheduler, RETRY_MS)
        if not found.ok:
            # It is listed again when it is back.
            self._watches.forget(path)
            self._watched.discard(broker)
            return
        try:
            node = BrokerIdZNode.decode(broker, found.data)
        except ZnodeFormatError as failure:
            log.error("place of broker ignored: %s", failure)
            return
        place = BrokerPlace(node.rack, node.machine, node.is_cordoned)
        before = self._places.get(broker)
        if before is not None and before.is_cordoned != place.is_cordoned:
            state = "cordoned: it takes no new replicas" if place.is_cordoned else "not cordoned"
            log.info("broker=%d is %s", broker, state)
        # Anew at the end: of those that have gone the ones unseen for longest are forgotten.
        self._places.pop(broker, None)
        self._places[broker] = place


def warn_of_shared_machines(
    assignment: Mapping[TopicPartition, Sequence[BrokerId]], places: Places
) -> None:
    """Log, in one line, that somebody has placed replicas on one machine by hand."""
    found = {
        partition: sharing
        for partition, replicas in assignment.items()
        if (sharing := sharing_a_machine(replicas, places))
    }
    if found:
        partition, brokers = next(iter(found.items()))
        log.warning(
            "replicas of %d partitions share a machine, and are lost together, such as "
            "partition=%s brokers=%s",
            len(found), partition, brokers,
        )  # fmt: skip
