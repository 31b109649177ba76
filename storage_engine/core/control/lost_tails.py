"""Which members of an ISR may have lost the end of their log, and who vouches for the others.

A machine that loses its power loses what was not flushed. Its broker registers with the number of
its first incarnation since then (`BrokerInfo.tail_lost_epoch`), in this and all later incarnations.
A partition's state says with which incarnation each member was last known to hold all that is
committed (`PartitionState.joined_epochs`): the leader sees it in the member's fetches, as it does
before a follower joins, and an elected leader holds by definition what is committed from then on.

Rule: a member that has not been vouched for since it may have lost its tail is a suspect. That is a
comparison of two numbers in ZooKeeper, so that every controller comes to the same. Source:
ARCHITECTURE decision 4, R-REP7, KIP-903.
"""

from collections.abc import Mapping

from storage_engine.core.control.cluster_state import BrokerInfo, PartitionState
from storage_engine.core.control.election_rules import Elected
from storage_engine.core.ids import NO_TAIL_LOST, BrokerEpoch, BrokerId


def suspects(
    state: PartitionState | None, brokers: Mapping[BrokerId, BrokerInfo]
) -> frozenset[BrokerId]:
    """Registered members of the ISR whose logs may lack what is committed."""
    if state is None:
        return frozenset()
    return frozenset(
        member
        for member in state.isr
        if member in brokers
        and state.joined_epochs.get(member, NO_TAIL_LOST) < brokers[member].tail_lost_epoch
    )


def joined_epochs_of(
    elected: Elected, state: PartitionState | None, brokers: Mapping[BrokerId, BrokerInfo]
) -> dict[BrokerId, BrokerEpoch]:
    """What a controller's write says of the ISR that it writes. Followers keep what was said of
    them; all replicas of a partition that has just been made hold nothing, which is right."""
    joined = {}
    for member in elected.isr:
        if (state is None or member == elected.leader) and member in brokers:
            joined[member] = brokers[member].epoch
        elif state is not None and member in state.joined_epochs:
            joined[member] = state.joined_epochs[member]
    return joined
