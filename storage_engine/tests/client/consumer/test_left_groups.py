"""A consumer that was not polled in time hands out nothing from the moment on in which it leaves
its group, though the coordinator may be slow to take its leave (R-CLI2)."""

from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.consumer.consumer_coordinator import ConsumerCoordinator
from storage_engine.client.consumer.membership import MembershipTick, Stage
from storage_engine.net.deadline import monotonic_ms


def test_a_poll_while_the_member_leaves_waits_for_the_end_of_what_it_had(fake, monkeypatch):
    config = ConsumerConfig.of({"bootstrap.servers": fake.bootstrap_servers, "group.id": "g"})
    coordinator = ConsumerCoordinator(config)
    # From here on this thread does its work.
    coordinator._loop.stop()
    coordinator._loop.join()
    member = coordinator._membership
    member.stage, member.member_id, member.generation, member.owns = Stage.MEMBER, "m", 1, True
    told: list[bool] = []
    monkeypatch.setattr(
        coordinator, "_leave", lambda _member_id: told.append(coordinator._poll_timed_out)
    )
    coordinator._step(MembershipTick(now_ms=monotonic_ms() + config.max_poll_interval_ms))
    assert told == [True]
