"""The leader epoch of a partition whose last one nobody remembers: its state was removed, or it is
new to a controller that has just taken over.

Rule: it is far below what 32 bits hold, so that the partition can go on having elections, and, as
long as there is room, above what earlier controllers are likely to have given out.
Source: R-CTL2, R-CTL10.
"""

from storage_engine.core.ids import ControllerEpoch, LeaderEpoch

EPOCHS_PER_CONTROLLER = 1024
"""More leader epochs than a partition is likely to have under one controller: where its state was
removed, those of a later controller are above it."""

SPARSE_FROM = 2**30
"""From here on there is less room than that for each controller: only somebody who wrote into
/controller_epoch gets so far."""
EPOCHS_PER_LATE_CONTROLLER = 16
"""A state that was removed after more elections than that under late controllers, may get a leader
epoch that is not above its replicas' logs."""

MAX_FIRST_LEADER_EPOCH = 2**31 - 2**27
"""None is higher, so that some hundred million elections can follow. Controllers get there with
epochs above 59 millions; from there on all of them begin with the same one."""


def first_leader_epoch(controller_epoch: ControllerEpoch) -> LeaderEpoch:
    """Never lower for a later controller."""
    epoch = controller_epoch * EPOCHS_PER_CONTROLLER
    if epoch > SPARSE_FROM:
        late = controller_epoch - SPARSE_FROM // EPOCHS_PER_CONTROLLER
        epoch = min(SPARSE_FROM + late * EPOCHS_PER_LATE_CONTROLLER, MAX_FIRST_LEADER_EPOCH)
    return LeaderEpoch(epoch)
