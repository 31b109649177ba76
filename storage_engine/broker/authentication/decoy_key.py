"""Agrees with the other brokers on the key from which the salts of unknown SCRAM users are made."""

import logging

from storage_engine.core.ports import Scheduler
from storage_engine.zookeeper.flow import Flow, ZookeeperFlows, pause
from storage_engine.zookeeper.znode_json import ZnodeFormatError
from storage_engine.zookeeper.znodes.scram_znodes import ScramDecoyZNode

log = logging.getLogger(__name__)

RETRY_MS = 500


def agree_on_decoy_key(zookeeper: ZookeeperFlows, scheduler: Scheduler) -> Flow[bytes]:
    """Reads the key, or creates it; waits for ZooKeeper for as long as it takes."""
    while True:
        found = yield from zookeeper.get(ScramDecoyZNode.PATH)
        if found.ok:
            try:
                return ScramDecoyZNode.decode(found.data).key
            except ZnodeFormatError as failure:
                log.error("%s; it is made anew", failure)
                assert found.stat is not None
                yield from zookeeper.delete(ScramDecoyZNode.PATH, found.stat.version)
        elif found.is_absent:
            yield from zookeeper.create(ScramDecoyZNode.PATH, ScramDecoyZNode.random().encode())
        else:
            yield from pause(scheduler, RETRY_MS)
