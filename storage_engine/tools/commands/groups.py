"""List consumer groups, show their members, offsets and lag, reset their offsets, delete them.

actions:
  list                 list the groups of the cluster
  describe GROUP       show the members of a group, its committed offsets and its lag
  settings GROUP       show the settings of a consumer group, and change them
  reset-offsets GROUP  change the committed offsets of a group that has no members
  delete GROUP         delete a group that has no members, and its committed offsets

A group is of the type classic or consumer, by the protocol of its members (group.protocol of a
consumer). In a consumer group the brokers assign partitions: a member has an epoch, partitions, and
a target, which it reaches once other members have let go of what they have to give up.

examples:
  headrace groups list --bootstrap-server 127.0.0.1:9092
  headrace groups list --bootstrap-server 127.0.0.1:9092 --type consumer --state empty
  headrace groups describe billing --bootstrap-server 127.0.0.1:9092
  headrace groups describe billing --bootstrap-server 127.0.0.1:9092 --members
  headrace groups settings billing --bootstrap-server 127.0.0.1:9092 \\
      --config consumer.session.timeout.ms=30000
  headrace groups reset-offsets billing --bootstrap-server 127.0.0.1:9092 --to-earliest
  headrace groups delete billing --bootstrap-server 127.0.0.1:9092
"""

import argparse
from collections.abc import Iterable
from dataclasses import asdict

from storage_engine.client.admin.group_descriptions import (
    CLASSIC_TYPE,
    CONSUMER_TYPE,
    GroupMember,
)
from storage_engine.client.admin.groups import (
    GroupDescription,
    delete_group,
    describe_group,
    list_groups,
)
from storage_engine.client.admin.offset_resets import reset_offsets
from storage_engine.client.admin.topics import alter_group_configs, describe_group_configs
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.core.ids import TopicPartition, numbers_by_topic
from storage_engine.core.settings.config_source import ConfigSource
from storage_engine.tools.actions import Actions, act_on_cluster
from storage_engine.tools.arguments import (
    TIME_HELP,
    add_config,
    add_json,
    natural_number,
    parse_configs,
    time_ms,
)
from storage_engine.tools.document import Document
from storage_engine.tools.table import print_json, print_rows, write_line

_STATES = (
    "Empty",
    "Stable",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Dead",
)
"""The states of groups: a classic one rebalances, the brokers assign a consumer group, and its
members reconcile what they have with that."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace groups`: each action has its own."""
    actions = Actions(parser, "groups")
    listing = actions.add("list", _list, "list the groups of the cluster", "list --type consumer")
    listing.add_argument(
        "--type",
        action="append",
        default=[],
        choices=(CLASSIC_TYPE, CONSUMER_TYPE),
        help="only groups of this type; repeatable (default: all)",
    )
    listing.add_argument(
        "--state",
        action="append",
        default=[],
        type=_state,
        metavar="STATE",
        help=f"only groups in this state: {', '.join(_STATES)}; repeatable (default: all)",
    )
    add_json(listing)
    describing = actions.add(
        "describe",
        _describe,
        "show the members of a group, its committed offsets and its lag",
        "describe billing",
    )
    describing.add_argument("group", metavar="GROUP", help="an existing group")
    describing.add_argument(
        "--members",
        action="store_true",
        help="show a row for each member, with its epoch, partitions and target, in place of one "
        "for each partition",
    )
    add_json(describing)
    _add_settings(actions)
    _add_reset(actions)
    deleting = actions.add(
        "delete",
        _delete,
        "delete a group that has no members, and its committed offsets",
        "delete billing",
    )
    deleting.add_argument("group", metavar="GROUP", help="an existing group without members")


def _state(text: str) -> str:
    known = {state.lower(): state for state in _STATES}
    if text.lower() not in known:
        raise argparse.ArgumentTypeError(f"'{text}' is no state; give one of {', '.join(_STATES)}")
    return known[text.lower()]


def run(args: argparse.Namespace) -> int:
    """Run `headrace groups`."""
    return act_on_cluster(args)


def _add_settings(actions: Actions) -> None:
    parser = actions.add(
        "settings",
        _settings,
        "show the settings of a consumer group, and change them",
        "settings billing --config consumer.heartbeat.interval.ms=3000",
    )
    parser.add_argument(
        "group", metavar="GROUP", help="a consumer group, or the name of one that is to come"
    )
    add_config(parser, "new value of a setting of the group")
    parser.add_argument(
        "--remove-config",
        action="append",
        default=[],
        metavar="KEY",
        help="remove the group's own value of a setting, so that the brokers' value applies; "
        "repeatable",
    )
    add_json(parser)


def _add_reset(actions: Actions) -> None:
    parser = actions.add(
        "reset-offsets",
        _reset,
        "change the committed offsets of a group that has no members",
        "reset-offsets billing --topic orders --to-earliest",
    )
    parser.add_argument(
        "group", metavar="GROUP", help="a group without members, or the name of a new group"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="reset all partitions of this topic; repeatable (default: the partitions that the "
        "group has committed offsets for)",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="continue at the oldest record")
    where.add_argument("--to-latest", action="store_true", help="continue after the newest record")
    where.add_argument(
        "--to-time",
        type=time_ms,
        metavar="TIME",
        help=f"continue at the first record of that time or later; {TIME_HELP}",
    )
    where.add_argument(
        "--to-offset", type=natural_number, metavar="OFFSET", help="continue at this offset"
    )
    where.add_argument(
        "--shift-by",
        type=int,
        metavar="N",
        help="move the offset forward by N, or back when N is negative",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show the new offsets without committing them"
    )
    add_json(parser)


# --- list and describe ---


def _list(cluster: Cluster, args: argparse.Namespace) -> None:
    listed = list_groups(cluster, states=args.state, types=args.type)
    rows = [asdict(each) for each in listed]
    columns = ("group", ("type", "group_type"), "state", ("protocol", "protocol_type"))
    print_rows((*columns, "coordinator"), rows, as_json=args.json)


def _describe(cluster: Cluster, args: argparse.Namespace) -> None:
    description = describe_group(cluster, args.group)
    partitions = [
        {
            **each.tp._asdict(),
            "offset": each.offset,
            "end_offset": each.end_offset,
            "lag": each.lag,
            "member": each.member_id,
        }
        for each in description.partitions
    ]
    if args.json:
        members = [_member_document(each) for each in description.members]
        print_json(
            {
                "group": description.group,
                "type": description.group_type,
                "state": description.state,
                "protocol": description.protocol,
                "coordinator": description.coordinator,
                "epoch": description.epoch,
                "assignment_epoch": description.assignment_epoch,
                "lag": description.lag,
                "partitions": partitions,
                "members": members,
            }
        )
        return
    write_line(_headline(description))
    if args.members:
        rows = [_member_row(each) for each in description.members]
        print_rows(
            ("member", "instance", "client", "host", "protocol", "epoch", "partitions", "target"),
            rows,
        )
        return
    print_rows(
        ("topic", "partition", "offset", ("end", "end_offset"), "lag", "member"),
        [{**row, "member": row["member"] or ""} for row in partitions],
    )


def _headline(description: GroupDescription) -> str:
    told = (
        f"group {description.group}: {description.state}, {len(description.members)} members, "
        f"coordinator {description.coordinator}"
    )
    if description.epoch is None:
        return told
    return (
        f"{told}, epoch {description.epoch}, assigned by {description.protocol} in epoch "
        f"{description.assignment_epoch}"
    )


def _member_document(member: GroupMember) -> Document:
    target = None if member.target is None else [tp._asdict() for tp in member.target]
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "partitions": len(member.partitions),
        "protocol": member.protocol,
        "epoch": member.epoch,
        "topics": None if member.topics is None else [*member.topics],
        "pattern": member.pattern,
        "assignment": [tp._asdict() for tp in member.partitions],
        "target": target,
    }


def _member_row(member: GroupMember) -> Document:
    is_there = member.target is None or member.target == member.partitions
    return {
        **_member_document(member),
        "instance": member.instance_id or "",
        "epoch": "" if member.epoch is None else member.epoch,
        "partitions": in_short(member.partitions),
        "target": "" if is_there or member.target is None else in_short(member.target),
    }


def in_short(partitions: Iterable[TopicPartition]) -> str:
    """Text such as `orders 0-3, 7; flights 2`."""
    topics = numbers_by_topic(sorted(partitions))
    return "; ".join(f"{topic} {_ranges(numbers)}" for topic, numbers in topics.items())


def _ranges(numbers: Iterable[int]) -> str:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


# --- settings ---


def _settings(cluster: Cluster, args: argparse.Namespace) -> None:
    configs = parse_configs(args.config)
    if configs or args.remove_config:
        alter_group_configs(cluster, args.group, configs, remove=args.remove_config)
        write_line(f"settings of group '{args.group}' changed")
        return
    rows: list[Document] = [
        {
            "setting": entry.name,
            "value": entry.value,
            "source": "group" if entry.source is ConfigSource.GROUP else "brokers",
        }
        for entry in describe_group_configs(cluster, args.group).values()
    ]
    print_rows(("setting", "value", "source"), rows, as_json=args.json)


# --- reset and delete ---


def _reset(cluster: Cluster, args: argparse.Namespace) -> None:
    at_ms = args.to_time
    if args.to_earliest or args.to_latest:
        at_ms = EARLIEST if args.to_earliest else LATEST
    resets = reset_offsets(
        cluster,
        args.group,
        topics=args.topic,
        at_ms=at_ms,
        offset=args.to_offset,
        shift_by=args.shift_by,
        dry_run=args.dry_run,
    )
    partitions = [
        {
            **each.tp._asdict(),
            "offset": each.before,
            "new_offset": each.after,
        }
        for each in resets
    ]
    if args.json:
        print_json({"group": args.group, "done": not args.dry_run, "partitions": partitions})
        return
    print_rows(("topic", "partition", "offset", ("new", "new_offset")), partitions)
    if args.dry_run:
        write_line("nothing is changed (--dry-run)")


def _delete(cluster: Cluster, args: argparse.Namespace) -> None:
    delete_group(cluster, args.group)
    write_line(f"deleted group '{args.group}'")
