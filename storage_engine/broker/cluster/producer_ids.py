"""Producer ids: this broker claims blocks of them in ZooKeeper and hands them out one by one.

Rule: a block belongs to the broker whose conditional write was accepted; an id is never handed out
twice, so a block whose write has an unknown outcome is given up. Source: KIP-98.
"""

import logging
from collections import deque
from collections.abc import Callable

from storage_engine.broker.unexpected import FAILED, guarded
from storage_engine.core.errors import ErrorCode
from storage_engine.core.ids import BrokerId
from storage_engine.core.ports import MetadataStore, ZkReply, ZkStatus
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes import ProducerIdBlockZNode

log = logging.getLogger(__name__)

IdCallback = Callable[[int, ErrorCode], None]
"""(producer id, NONE) or (-1, error)."""

MAX_TRIES = 20
"""Blocks that other brokers may take before us in one claim."""


class ProducerIds:
    """Allocator of one broker."""

    def __init__(self, metadata_store: MetadataStore, *, broker_id: int) -> None:
        self._metadata_store = metadata_store
        self._broker_id = BrokerId(broker_id)
        self._next_id = 0
        self._end_id = 0
        """Exclusive."""
        self._waiting: deque[IdCallback] = deque()

    def allocate(self, on_id: IdCallback) -> None:
        """A producer id that nobody ever had, now or when a new block has been claimed."""
        if self._next_id < self._end_id and not self._waiting:
            self._next_id += 1
            on_id(self._next_id - 1, ErrorCode.NONE)
            return
        self._waiting.append(on_id)
        if len(self._waiting) == 1:
            self._claim(MAX_TRIES)

    def _claim(self, tries: int) -> None:
        def on_read(reply: ZkReply) -> None:
            if reply.status is ZkStatus.NO_NODE:
                block = ProducerIdBlockZNode.next_block(None, self._broker_id)
                self._metadata_store.create(
                    ProducerIdBlockZNode.PATH, block.encode(), lambda r: on_written(block, r)
                )
            elif reply.ok and reply.stat is not None:
                try:
                    previous = ProducerIdBlockZNode.decode(reply.data)
                except ZnodeFormatError as failure:
                    log.error("no producer ids: %s", failure)
                    self._fail(ErrorCode.UNKNOWN_SERVER_ERROR)
                    return
                block = ProducerIdBlockZNode.next_block(previous, self._broker_id)
                self._metadata_store.set(
                    ProducerIdBlockZNode.PATH,
                    block.encode(),
                    reply.stat.version,
                    lambda r: on_written(block, r),
                )
            else:
                self._fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        def on_written(block: ProducerIdBlockZNode, reply: ZkReply) -> None:
            if reply.ok:
                self._next_id, self._end_id = block.first_id, block.last_id + 1
                self._serve()
            elif reply.status in (ZkStatus.BAD_VERSION, ZkStatus.NODE_EXISTS) and tries > 1:
                self._claim(tries - 1)
            else:
                self._fail(ErrorCode.COORDINATOR_NOT_AVAILABLE)

        def read(reply: ZkReply) -> None:
            if guarded("the claim of producer ids", on_read, reply) is FAILED:
                self._fail(ErrorCode.UNKNOWN_SERVER_ERROR)

        self._metadata_store.get(ProducerIdBlockZNode.PATH, read)

    def _serve(self) -> None:
        while self._waiting and self._next_id < self._end_id:
            self._next_id += 1
            guarded("a producer id", self._waiting.popleft(), self._next_id - 1, ErrorCode.NONE)
        if self._waiting:
            self._claim(MAX_TRIES)

    def _fail(self, code: ErrorCode) -> None:
        waiting, self._waiting = self._waiting, deque()
        for on_id in waiting:
            guarded("a producer id", on_id, -1, code)
