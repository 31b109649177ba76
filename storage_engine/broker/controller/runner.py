"""This broker as a candidate for controller: takes part in the election, and acts while it is
elected.

There is an ActingController exactly while this broker's session holds `/controller`. Source:
R-CTL1, R-CTL5.
"""

import logging
from collections.abc import Callable, Iterable

from storage_engine.broker import unexpected
from storage_engine.broker.controller.acting_controller import ActingController, ControllerSettings
from storage_engine.core.ids import ControllerEpoch
from storage_engine.core.ports import Clock, MetadataStore, Scheduler
from storage_engine.protocol.transport import Transport
from storage_engine.zookeeper.controller_election import ControllerElection

log = logging.getLogger(__name__)


class ControllerRunner:
    """This broker as a candidate and, while it is elected, as the controller."""

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        metadata_store: MetadataStore,
        transport: Transport,
        scheduler: Scheduler,
        clock: Clock,
        known_epoch: Callable[[], ControllerEpoch],
    ) -> None:
        """`known_epoch`: the highest controller epoch whose orders this broker has accepted."""
        self.broker_id = settings.broker_id
        self._settings = settings
        self._metadata_store = metadata_store
        self._transport = transport
        self._scheduler = scheduler
        self.acting: ActingController | None = None
        self._started = False
        self._election = ControllerElection(
            metadata_store,
            settings.broker_id,
            clock,
            scheduler,
            on_elected=self._elected,
            on_resigned=self._resigned,
            known_epoch=known_epoch,
        )

    def start(self) -> None:
        """Become a candidate; further calls change nothing."""
        if not self._started:
            self._started = True
            self._election.start()

    def close(self) -> None:
        """Resign for good, so that another broker takes over at once."""
        if self._started:
            self._election.stop()
        self._resigned()

    def settings_changed(self, topics: Iterable[str] | None) -> None:
        """Topics, or all of them (None), may have other settings than before."""
        if self.acting is not None:
            self.acting.settings_changed(topics)

    def features_changed(self) -> None:
        """The cluster uses other levels of features than before."""
        if self.acting is not None:
            self.acting.features_changed()

    def _elected(self, controller_epoch: ControllerEpoch, epoch_znode_version: int) -> None:
        self._resigned()
        log.info("elected as controller epoch=%d", controller_epoch)
        self.acting = ActingController(
            self._settings,
            controller_epoch=controller_epoch,
            epoch_znode_version=epoch_znode_version,
            metadata_store=self._metadata_store,
            transport=self._transport,
            scheduler=self._scheduler,
            resign=self._replaced,
            give_up=self._give_up,
        )
        try:
            self.acting.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, another broker may do better
            self._give_up()
            unexpected.report(f"controller epoch={controller_epoch} can't begin", error)

    def _resigned(self) -> None:
        if self.acting is not None:
            log.info("no longer controller epoch=%d", self.acting.controller_epoch)
            self.acting.close()
            self.acting = None

    def _replaced(self) -> None:
        """A broker or ZooKeeper reports a newer controller."""
        self._resigned()
        self._election.reconsider()

    def _give_up(self) -> None:
        """Leave it to the next controller, which loads everything in an epoch of its own."""
        self._election.give_up()
