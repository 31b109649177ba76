"""Producer ids: this broker claims blocks of them in ZooKeeper and hands them out one by one.

A block belongs to the broker whose conditional write was accepted; an id is never handed out twice,
so a block whose write has an unknown outcome is given up. Source: KIP-98.
"""

import logging
from collections import deque
from collections.abc import Callable

from storage_engine.broker import unexpected
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import MetadataStore, ZkStatus
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.cluster_znodes import ProducerIdBlockZNode

log = logging.getLogger(__name__)


IdCallback = Callable[[int, ErrorCode], None]
"""(producer id, NONE) or (-1, error)."""

MAX_TRIES = 20
"""The most blocks that other brokers may take first during one claim."""


class ProducerIds:
    """Allocates the producer ids of one broker."""

    def __init__(self, metadata_store: MetadataStore, *, broker_id: int) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = Flows()
        self._broker_id = BrokerId(broker_id)
        self._next_id = 0
        self._end_id = 0
        """The end of the claimed block, exclusive."""
        self._waiting: deque[IdCallback] = deque()
        self._is_claiming = False

    def allocate(self, on_id: IdCallback) -> None:
        """Pass on an unused producer id, now or when a new block has been claimed."""
        if self._next_id < self._end_id and not self._waiting:
            self._next_id += 1
            on_id(self._next_id - 1, ErrorCode.NONE)
            return
        self._waiting.append(on_id)
        if not self._is_claiming:
            self._is_claiming = True
            self._flows.start(self._serve())

    def _serve(self) -> Flow[None]:
        """Claim blocks until no request waits."""
        code = ErrorCode.NONE
        while self._waiting and code is ErrorCode.NONE:
            try:
                code = yield from self._claim()
            except Exception as error:  # noqa: BLE001 - whatever it is, who waits is answered
                unexpected.report("the claim of producer ids", error)
                code = ErrorCode.UNKNOWN_SERVER_ERROR
            while self._waiting and self._next_id < self._end_id:
                self._next_id += 1
                self._give(self._waiting.popleft(), self._next_id - 1, ErrorCode.NONE)
        self._is_claiming = False
        unserved, self._waiting = self._waiting, deque()
        for on_id in unserved:
            self._give(on_id, -1, code)

    def _give(self, on_id: IdCallback, producer_id: int, code: ErrorCode) -> None:
        unexpected.guarded("a producer id", on_id, producer_id, code)

    def _claim(self) -> Flow[ErrorCode]:
        """Claim the next block; NONE when its ids are this broker's."""
        path = ProducerIdBlockZNode.PATH
        for _ in range(MAX_TRIES):
            found = yield from self._zookeeper.get(path)
            if found.status is ZkStatus.NO_NODE:
                block = ProducerIdBlockZNode.next_block(None, self._broker_id)
                written = yield from self._zookeeper.create(path, block.encode())
            elif found.ok and found.stat is not None:
                try:
                    previous = ProducerIdBlockZNode.decode(found.data)
                except ZnodeFormatError as failure:
                    log.error("no producer ids can be allocated: %s", failure)
                    return ErrorCode.UNKNOWN_SERVER_ERROR
                block = ProducerIdBlockZNode.next_block(previous, self._broker_id)
                version = found.stat.version
                written = yield from self._zookeeper.set(path, block.encode(), version)
            else:
                break
            if written.ok:
                self._next_id, self._end_id = block.first_id, block.last_id + 1
                return ErrorCode.NONE
            if written.status not in (ZkStatus.BAD_VERSION, ZkStatus.NODE_EXISTS):
                break
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
