"""A broker acts as a leader only with a session that surely lives, and after it was told anew what
it leads (R-REP11)."""

import pytest

from storage_engine.broker.replicas.lease import LeaderLease
from storage_engine.core.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("is_fenced", [False, True])
@pytest.mark.parametrize("is_valid", [True, False])
def test_the_lease_is_held_only_with_a_valid_session_and_without_a_fence(is_valid, is_fenced):
    lease = LeaderLease(lambda: is_valid)
    if is_fenced:
        lease.fence()
    assert lease.is_held == (is_valid and not is_fenced)
    if not lease.is_held:
        with pytest.raises(KafkaError, match="ZooKeeper") as refusal:
            lease.check()
        assert refusal.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        lease.unfence()
    assert lease.is_held == is_valid
    if is_valid:
        lease.check()
