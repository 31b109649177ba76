"""Consumer groups: who is in them, how far they have read, and from where they read on.

actions:
  list                 the groups of the cluster
  describe GROUP       members, offsets and lag
  reset-offsets GROUP  let a group without members read on from elsewhere
  delete GROUP         forget a group without members, and its offsets

examples:
  headrace groups list --bootstrap-server 127.0.0.1:9092
  headrace groups describe billing --bootstrap-server 127.0.0.1:9092
  headrace groups reset-offsets billing --bootstrap-server 127.0.0.1:9092 --to-earliest
  headrace groups delete billing --bootstrap-server 127.0.0.1:9092
"""

import argparse
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.client.groups import (
    DEAD,
    GroupDescription,
    delete_group,
    describe_group,
    group_offsets,
    list_groups,
    set_group_offsets,
)
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.ids import TopicPartition
from storage_engine.tools.arguments import add_bootstrap_server, add_json, natural_number
from storage_engine.tools.errors import CommandError
from storage_engine.tools.table import print_json, print_table, write_line

NONE = -1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace groups`: each action has its own."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = _add(actions, "list", _list, "the groups of the cluster", "list")
    add_json(listing)
    describing = _add(
        actions, "describe", _describe, "members, offsets and lag of a group", "describe billing"
    )
    describing.add_argument("group", metavar="GROUP", help="an existing group")
    add_json(describing)
    _add_reset(actions)
    deleting = _add(actions, "delete", _delete, "forget a group without members", "delete billing")
    deleting.add_argument("group", metavar="GROUP", help="an existing group")


def run(args: argparse.Namespace) -> int:
    """Run `headrace groups`."""
    with Cluster(args.bootstrap_server) as cluster:
        args.act(cluster, args)
    return 0


def _add(actions: Any, name: str, act: Any, summary: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=summary,
        description=(
            f"{summary[0].upper()}{summary[1:]}.\n\nexample:\n"
            f"  headrace groups {example} --bootstrap-server 127.0.0.1:9092"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_bootstrap_server(parser)
    parser.set_defaults(act=act)
    return parser


def _add_reset(actions: Any) -> None:
    parser = _add(
        actions,
        "reset-offsets",
        _reset,
        "let a group without members read on from elsewhere",
        "reset-offsets billing --topic orders --to-earliest",
    )
    parser.add_argument("group", metavar="GROUP", help="a group without members, or a new one")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="all partitions of it; repeatable (default: what the group has offsets of)",
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the oldest records there are")
    where.add_argument("--to-latest", action="store_true", help="only what comes from now on")
    where.add_argument(
        "--to-time",
        type=time_ms,
        metavar="TIME",
        help="the first record at or after it: 2026-01-31T12:00:00 (UTC, or with a zone) or "
        "milliseconds since 1970",
    )
    where.add_argument("--to-offset", type=natural_number, metavar="OFFSET", help="that offset")
    where.add_argument(
        "--shift-by", type=int, metavar="N", help="so many records on, or back if negative"
    )
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    add_json(parser)


def time_ms(text: str) -> int:
    """Milliseconds since 1970."""
    if text.isdecimal():
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{text}' is no time: give 2026-01-31T12:00:00 or milliseconds since 1970"
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


# --- list and describe ---


def _list(cluster: Cluster, args: argparse.Namespace) -> None:
    groups = list_groups(cluster)
    if args.json:
        print_json(
            [
                {
                    "group": each.group,
                    "state": each.state,
                    "protocol_type": each.protocol_type,
                    "coordinator": each.coordinator,
                }
                for each in groups
            ]
        )
        return
    rows = [(each.group, each.state, each.protocol_type, each.coordinator) for each in groups]
    print_table(("group", "state", "type", "coordinator"), rows)


def _describe(cluster: Cluster, args: argparse.Namespace) -> None:
    description = _existing(cluster, args.group)
    committed = group_offsets(cluster, args.group)
    owners = {tp: member for member in description.members for tp in member.partitions}
    ends = _offsets_at(cluster, {*committed, *owners}, LATEST)
    rows = []
    for tp in sorted({*committed, *owners}):
        offset, end = committed.get(tp, NONE), ends.get(tp, NONE)
        lag = max(0, end - offset) if NONE not in (offset, end) else None
        owner = owners.get(tp)
        rows.append((tp, offset, end, lag, "" if owner is None else owner.member_id))
    if args.json:
        print_json(
            {
                "group": description.group,
                "state": description.state,
                "protocol": description.protocol,
                "coordinator": description.coordinator,
                "lag": sum(lag or 0 for _, _, _, lag, _ in rows),
                "partitions": [
                    {
                        "topic": tp.topic,
                        "partition": tp.partition,
                        "offset": None if offset == NONE else offset,
                        "end_offset": None if end == NONE else end,
                        "lag": lag,
                        "member": owner or None,
                    }
                    for tp, offset, end, lag, owner in rows
                ],
                "members": [
                    {
                        "member": each.member_id,
                        "instance": each.instance_id,
                        "client": each.client_id,
                        "host": each.host,
                        "partitions": len(each.partitions),
                    }
                    for each in description.members
                ],
            }
        )
        return
    write_line(
        f"group {description.group}: {description.state}, {len(description.members)} members, "
        f"coordinator {description.coordinator}"
    )
    print_table(
        ("topic", "partition", "offset", "end", "lag", "member"),
        [
            (
                tp.topic,
                tp.partition,
                "-" if offset == NONE else offset,
                "-" if end == NONE else end,
                "-" if lag is None else lag,
                owner,
            )
            for tp, offset, end, lag, owner in rows
        ],
    )


def _existing(cluster: Cluster, group: str) -> GroupDescription:
    description = describe_group(cluster, group)
    if description.state == DEAD:
        raise CommandError(f"there is no group '{group}': 'headrace groups list' shows all")
    return description


# --- reset and delete ---


def _reset(cluster: Cluster, args: argparse.Namespace) -> None:
    description = describe_group(cluster, args.group)
    if description.members:
        raise CommandError(
            f"group '{args.group}' has {len(description.members)} members: stop them first, since "
            "they would go on from where they are"
        )
    committed = group_offsets(cluster, args.group)
    wanted = set(committed)
    if args.topic:
        wanted = {
            TopicPartition(topic, number)
            for topic in args.topic
            for number in cluster.topic(topic).partitions
        }
    if not wanted:
        raise CommandError(f"group '{args.group}' has no offsets: name its topics with --topic")
    targets = _targets(cluster, args, wanted, committed)
    if not args.dry_run:
        set_group_offsets(cluster, args.group, targets)
    rows = [(tp, committed.get(tp, NONE), targets[tp]) for tp in sorted(targets)]
    if args.json:
        print_json(
            {
                "group": args.group,
                "done": not args.dry_run,
                "partitions": [
                    {
                        "topic": tp.topic,
                        "partition": tp.partition,
                        "offset": None if before == NONE else before,
                        "new_offset": after,
                    }
                    for tp, before, after in rows
                ],
            }
        )
        return
    print_table(
        ("topic", "partition", "offset", "new"),
        [(tp.topic, tp.partition, "-" if b == NONE else b, a) for tp, b, a in rows],
    )
    if args.dry_run:
        write_line("nothing is changed (--dry-run)")


def _targets(
    cluster: Cluster,
    args: argparse.Namespace,
    wanted: Iterable[TopicPartition],
    committed: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Within what the partitions hold."""
    first = _offsets_at(cluster, wanted, EARLIEST)
    last = _offsets_at(cluster, wanted, LATEST)
    gone = sorted(set(wanted) - set(last))
    if gone:
        raise CommandError(f"{gone[0]} does not exist any more: name the topics with --topic")
    if args.to_earliest:
        return first
    if args.to_latest:
        return last
    if args.to_time is not None:
        at_time = _offsets_at(cluster, wanted, args.to_time)
        return {tp: last[tp] if at == NONE else at for tp, at in at_time.items()}
    if args.to_offset is not None:
        return {tp: min(max(args.to_offset, first[tp]), last[tp]) for tp in last}
    missing = sorted(set(last) - set(committed))
    if missing:
        raise CommandError(f"the group has no offset of {missing[0]} that could be shifted")
    return {tp: min(max(committed[tp] + args.shift_by, first[tp]), last[tp]) for tp in last}


def _offsets_at(
    cluster: Cluster, partitions: Iterable[TopicPartition], at_ms: int
) -> dict[TopicPartition, int]:
    """Without those of topics that are gone."""
    wanted = set(partitions)
    names = {tp.topic for tp in wanted}
    view = cluster.metadata(sorted(names)) if names else None
    there = {
        tp: at_ms
        for tp in wanted
        if view is not None
        and tp.topic in view.topics
        and tp.partition in view.topics[tp.topic].partitions
    }
    return cluster.list_offsets(there)


def _delete(cluster: Cluster, args: argparse.Namespace) -> None:
    try:
        delete_group(cluster, args.group)
    except KafkaError as error:
        if error.code is ErrorCode.NON_EMPTY_GROUP:
            raise CommandError(f"group '{args.group}' has members: stop them first") from None
        raise
    write_line(f"deleted group '{args.group}'")
