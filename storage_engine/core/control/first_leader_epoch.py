"""Chooses the first leader epoch of a partition whose last one is unknown: its state was removed,
or the partition is new to a controller that has just taken over.

It is far below the maximum of 32 bits, so that many elections can follow, and, as long as there is
room, above what earlier controllers are likely to have given out. Source: R-CTL2, R-CTL10.
"""

from storage_engine.core.ids import ControllerEpoch, LeaderEpoch

EPOCHS_PER_CONTROLLER = 1024
"""More leader epochs than a partition is likely to have under one controller, so that where its
state was removed, the epochs of a later controller are above the former ones."""

SPARSE_FROM = 2**30
"""From this leader epoch on there is less room for each controller. Only a controller epoch that
somebody wrote into /controller_epoch by hand leads here."""
EPOCHS_PER_LATE_CONTROLLER = 16
"""The leader epochs for each such late controller. A partition whose state was removed after more
elections than that may get a leader epoch that is not above its replicas' logs."""

MAX_FIRST_LEADER_EPOCH = 2**31 - 2**27
"""The largest first leader epoch; it leaves room for some hundred million elections. Controller
epochs above 59 million get there; from there on all controllers begin with this one."""


def first_leader_epoch(controller_epoch: ControllerEpoch) -> LeaderEpoch:
    """Return the first leader epoch under a controller; it is never lower for a later
    controller."""
    epoch = controller_epoch * EPOCHS_PER_CONTROLLER
    if epoch > SPARSE_FROM:
        late = controller_epoch - SPARSE_FROM // EPOCHS_PER_CONTROLLER
        epoch = min(SPARSE_FROM + late * EPOCHS_PER_LATE_CONTROLLER, MAX_FIRST_LEADER_EPOCH)
    return LeaderEpoch(epoch)
