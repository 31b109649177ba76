"""List consumer groups, show their members, offsets and lag, reset their offsets, delete them.

actions:
  list                 list the groups of the cluster
  describe GROUP       show the members of a group, its committed offsets and its lag
  reset-offsets GROUP  change the committed offsets of a group that has no members
  delete GROUP         delete a group that has no members, and its committed offsets

examples:
  headrace groups list --bootstrap-server 127.0.0.1:9092
  headrace groups describe billing --bootstrap-server 127.0.0.1:9092
  headrace groups reset-offsets billing --bootstrap-server 127.0.0.1:9092 --to-earliest
  headrace groups delete billing --bootstrap-server 127.0.0.1:9092
"""

import argparse
from dataclasses import asdict

from storage_engine.client.admin.groups import delete_group, describe_group, list_groups
from storage_engine.client.admin.offset_resets import reset_offsets
from storage_engine.client.cluster import EARLIEST, LATEST, Cluster
from storage_engine.tools.actions import Actions, act_on_cluster
from storage_engine.tools.arguments import TIME_HELP, add_json, natural_number, time_ms
from storage_engine.tools.table import print_json, print_rows, write_line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace groups`: each action has its own."""
    actions = Actions(parser, "groups")
    add_json(actions.add("list", _list, "list the groups of the cluster", "list"))
    describing = actions.add(
        "describe",
        _describe,
        "show the members of a group, its committed offsets and its lag",
        "describe billing",
    )
    describing.add_argument("group", metavar="GROUP", help="an existing group")
    add_json(describing)
    _add_reset(actions)
    deleting = actions.add(
        "delete",
        _delete,
        "delete a group that has no members, and its committed offsets",
        "delete billing",
    )
    deleting.add_argument("group", metavar="GROUP", help="an existing group without members")


def run(args: argparse.Namespace) -> int:
    """Run `headrace groups`."""
    return act_on_cluster(args)


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
    rows = [asdict(each) for each in list_groups(cluster)]
    columns = ("group", "state", ("type", "protocol_type"), "coordinator")
    print_rows(columns, rows, as_json=args.json)


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
        members = [
            {
                "member": each.member_id,
                "instance": each.instance_id,
                "client": each.client_id,
                "host": each.host,
                "partitions": len(each.partitions),
            }
            for each in description.members
        ]
        print_json(
            {
                "group": description.group,
                "state": description.state,
                "protocol": description.protocol,
                "coordinator": description.coordinator,
                "lag": description.lag,
                "partitions": partitions,
                "members": members,
            }
        )
        return
    write_line(
        f"group {description.group}: {description.state}, {len(description.members)} members, "
        f"coordinator {description.coordinator}"
    )
    print_rows(
        ("topic", "partition", "offset", ("end", "end_offset"), "lag", "member"),
        [{**row, "member": row["member"] or ""} for row in partitions],
    )


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
