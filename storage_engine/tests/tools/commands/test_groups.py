"""`headrace groups` shows consumer groups with their epochs and both assignments."""

import json

import pytest

from storage_engine.client.admin.group_descriptions import GroupMember
from storage_engine.client.admin.groups import GroupDescription, ListedGroup
from storage_engine.client.admin.topics import ConfigEntry
from storage_engine.core.ids import TopicPartition
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.tools.cli import main
from storage_engine.tools.commands import groups

SERVER = ("--bootstrap-server", "127.0.0.1:1")
T = [TopicPartition("t", number) for number in range(6)]
U0 = TopicPartition("u", 0)


def described(group_type="consumer"):
    is_consumer = group_type == "consumer"
    member = GroupMember(
        member_id="m",
        instance_id=None,
        client_id="c",
        host="/h",
        partitions=(T[0], T[1], T[2], T[5], U0),
        protocol=group_type,
        epoch=3 if is_consumer else None,
        target=(T[0],) if is_consumer else None,
        topics=("t", "u") if is_consumer else None,
    )
    return GroupDescription(
        group="g",
        group_type=group_type,
        state="Reconciling",
        protocol_type="consumer",
        protocol="uniform",
        coordinator=1,
        members=(member,),
        epoch=5 if is_consumer else None,
        assignment_epoch=4 if is_consumer else None,
        partitions=(),
    )


@pytest.mark.parametrize(
    ("group_type", "lines"),
    [
        (
            "consumer",
            [
                "group g: Reconciling, 1 members, coordinator 1, epoch 5, assigned by uniform in"
                " epoch 4",
                "MEMBER  INSTANCE  CLIENT  HOST  PROTOCOL  EPOCH  PARTITIONS     TARGET",
                "m                 c       /h    consumer      3  t 0-2, 5; u 0  t 0",
            ],
        ),
        (
            "classic",
            [
                "group g: Reconciling, 1 members, coordinator 1",
                "MEMBER  INSTANCE  CLIENT  HOST  PROTOCOL  EPOCH  PARTITIONS     TARGET",
                "m                 c       /h    classic          t 0-2, 5; u 0",
            ],
        ),
    ],
)
def test_members_are_shown_with_epochs_and_targets(monkeypatch, capsys, group_type, lines):
    monkeypatch.setattr(groups, "describe_group", lambda _cluster, _group: described(group_type))
    assert main(["groups", "describe", "g", "--members", *SERVER]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_the_json_of_a_group_has_all_of_its_members(monkeypatch, capsys):
    monkeypatch.setattr(groups, "describe_group", lambda _cluster, _group: described())
    assert main(["groups", "describe", "g", "--json", *SERVER]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["type"], told["epoch"], told["assignment_epoch"]) == ("consumer", 5, 4)
    (member,) = told["members"]
    assert member["target"] == [{"topic": "t", "partition": 0}]
    assert len(member["assignment"]) == member["partitions"] == 5


def test_groups_are_listed_by_the_given_types_and_states(monkeypatch, capsys):
    asked: list[object] = []

    def listed(_cluster, **wanted):
        asked.append(wanted)
        row = ListedGroup(
            group="g",
            state="Stable",
            protocol_type="consumer",
            coordinator=1,
            group_type="consumer",
        )
        return [row]

    monkeypatch.setattr(groups, "list_groups", listed)
    assert main(["groups", "list", "--type", "consumer", "--state", "stable", *SERVER]) == 0
    assert asked == [{"types": ["consumer"], "states": ["Stable"]}]
    assert capsys.readouterr().out.splitlines() == [
        "GROUP  TYPE      STATE   PROTOCOL  COORDINATOR",
        "g      consumer  Stable  consumer            1",
    ]


def test_a_state_that_no_group_has_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["groups", "list", "--state", "happy", *SERVER])
    assert "'happy' is no state; give one of Empty, Stable," in capsys.readouterr().err


def test_settings_of_a_group_are_shown_with_their_source(monkeypatch, capsys):
    entries = {
        name: ConfigEntry(name=name, value=value, source=source, read_only=False, sensitive=False)
        for name, value, source in (
            ("consumer.heartbeat.interval.ms", "3000", ConfigSource.GROUP),
            ("consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
        )
    }
    monkeypatch.setattr(groups, "describe_group_configs", lambda _cluster, _group: entries)
    assert main(["groups", "settings", "g", *SERVER]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "SETTING                         VALUE  SOURCE",
        "consumer.heartbeat.interval.ms  3000   group",
        "consumer.session.timeout.ms     45000  brokers",
    ]


def test_settings_of_a_group_are_set_and_removed(monkeypatch, capsys):
    asked: list[object] = []
    monkeypatch.setattr(
        groups,
        "alter_group_configs",
        lambda _cluster, group, values, *, remove: asked.append((group, values, remove)),
    )
    command = ["groups", "settings", "g", "--config", "a=1", "--remove-config", "b", *SERVER]
    assert main(command) == 0
    assert asked == [("g", {"a": "1"}, ["b"])]
    assert capsys.readouterr().out == "settings of group 'g' changed\n"
