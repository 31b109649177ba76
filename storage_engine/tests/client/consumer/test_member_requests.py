"""Requests of a member: a static one (KIP-345) has its name in each."""

import re

import pytest

from storage_engine.client.consumer import member_requests
from storage_engine.client.consumer.consumer_config import ConsumerConfig
from storage_engine.client.groups.group_requests import MemberIdentity
from storage_engine.core.errors import ConfigError

CALLER = MemberIdentity(member_id="m", generation=3)


@pytest.mark.parametrize("name", [None, "static"])
def test_the_group_and_the_name_of_a_static_member_are_in_each_request(name):
    settings = {"bootstrap.servers": "h:1", "group.id": "g", "group.instance.id": name}
    config = ConsumerConfig.of({key: value for key, value in settings.items() if value})
    leave = member_requests.leave(config, "m").message
    named = [
        member_requests.join(config, "m", b"topics").message,
        member_requests.sync(config, CALLER, {}).message,
        member_requests.heartbeat(config, CALLER).message,
        *leave.members,
    ]
    assert [each.group_instance_id for each in named] == [name] * 4
    assert [each.member_id for each in named] == ["m"] * 4
    assert {each.group_id for each in [*named[:3], leave]} == {"g"}
    assert {each.generation_id for each in named[1:3]} == {3}


def test_a_join_waits_for_as_long_as_others_may_take_to_poll():
    config = ConsumerConfig.of(
        {"bootstrap.servers": "h:1", "group.id": "g", "max.poll.interval.ms": 77_000}
    )
    message = member_requests.join(config, "", b"topics").message
    assert (message.rebalance_timeout_ms, message.session_timeout_ms) == (77_000, 45_000)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (re.compile("a.b"), "a.b"),
        (re.compile("a", re.IGNORECASE | re.DOTALL), "(?is)a"),
        (re.compile("(?m)a"), "(?m)(?m)a"),
    ],
)
def test_a_pattern_is_sent_with_the_flags_that_brokers_know(pattern, text):
    assert member_requests.re2_text(pattern) == text


def test_a_pattern_with_a_flag_that_brokers_do_not_know_is_refused():
    with pytest.raises(ConfigError, match=r"the pattern 'a b' has the flag re\.VERBOSE"):
        member_requests.re2_text(re.compile("a b", re.VERBOSE))
