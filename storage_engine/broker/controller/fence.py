"""The fence of one elected controller: whether its epoch is still the newest.

Every write of a controller is in one multi with `check`, so that a controller that has been
replaced can't write. When a multi is refused for this reason, the controller ends. Source: R-CTL1,
R-CTL2.
"""

from collections.abc import Callable

from storage_engine.core.ports import MetadataStore, ZkOp, ZkOpKind
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows
from storage_engine.zookeeper.znodes.cluster_znodes import ControllerEpochZNode


class ControllerFence:
    """The version of `/controller_epoch` that this controller was elected with."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        flows: Flows,
        *,
        epoch_znode_version: int,
        on_replaced: Callable[[], None],
    ) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = flows
        self._on_replaced = on_replaced
        self.check = ZkOp(
            kind=ZkOpKind.CHECK, path=ControllerEpochZNode.PATH, version=epoch_znode_version
        )
        """An operation for a multi that only the present controller may execute."""

    def verify(self) -> None:
        """Finds out, after a multi was refused, whether the controller epoch was the reason; if so,
        this controller ends."""
        self._flows.start(self.is_current())

    def is_current(self) -> Flow[bool | None]:
        """Whether no later controller was elected; None: ZooKeeper did not answer. Where one was,
        this controller has ended by then."""
        reply = yield from self._zookeeper.exists(ControllerEpochZNode.PATH)
        if reply.ok and reply.stat is not None:
            is_current = reply.stat.version == self.check.version
        elif reply.is_absent:
            # Whoever is elected makes it anew.
            is_current = False
        else:
            return None
        if not is_current:
            self._on_replaced()
        return is_current
