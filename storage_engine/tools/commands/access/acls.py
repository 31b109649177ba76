"""List, add, remove and copy access rules (ACLs).

Rules are for topics, groups, transactional ids and the cluster.

An operation that no rule allows is denied, except to super.users; a rule that denies it overrides
every rule that allows it. Brokers enforce the rules when authorizer.class.name is set.

actions:
  list     list rules
  add      add rules
  remove   remove rules
  copy     copy the rules of another cluster, of Headrace or of Apache Kafka; rules that are there
           already stay

A principal is User:NAME; User:* means every user. A resource is named with --topic, --group,
--transactional-id (also the name of an exactly-once sink) or --cluster. The name '*' means all
resources of that type; with --prefixed, a name means all resources whose name begins with it.

examples:
  headrace acls list --bootstrap-server 127.0.0.1:9092
  headrace acls add --bootstrap-server 127.0.0.1:9092 --allow User:app --producer --topic orders
  headrace acls add --bootstrap-server 127.0.0.1:9092 --allow User:app --consumer --topic orders \\
      --group billing
  headrace acls add --bootstrap-server 127.0.0.1:9092 --deny User:app --operation Read --topic pay
  headrace acls remove --bootstrap-server 127.0.0.1:9092 --principal User:app
  headrace acls copy --source kafka:9092 --bootstrap-server 127.0.0.1:9092
"""

import argparse
from pathlib import Path

from storage_engine.client.admin.access_rules import (
    create_rules,
    delete_rules,
    describe_rules,
)
from storage_engine.client.cluster import Cluster
from storage_engine.core.security.acl_rules import (
    CLUSTER_NAME,
    WILDCARD,
    AccessRule,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from storage_engine.core.security.principal import Principal
from storage_engine.tools.actions import Actions, act_on_cluster
from storage_engine.tools.arguments import BOOTSTRAP_HELP, CONFIG_HELP, add_json
from storage_engine.tools.client_settings import connect
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_json, print_table, write_line

_RESOURCES = (
    ("topic", ResourceType.TOPIC),
    ("group", ResourceType.GROUP),
    ("transactional_id", ResourceType.TRANSACTIONAL_ID),
)

_O = AclOperation
_PRODUCER = {
    ResourceType.TOPIC: (_O.WRITE, _O.DESCRIBE, _O.CREATE),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE),
}
_CONSUMER = {ResourceType.TOPIC: (_O.READ, _O.DESCRIBE), ResourceType.GROUP: (_O.READ,)}
"""The operations that a producer and a consumer need, as with Kafka's kafka-acls."""

_A_REQUEST = 1_000
"""Rules that are added together."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace acls`: each action has its own."""
    actions = Actions(parser, "acls")
    listing = actions.add("list", _list, "list rules", "list --topic orders")
    _add_resources(listing)
    listing.add_argument("--principal", metavar="P", help="only the rules of this principal")
    add_json(listing)
    adding = actions.add(
        "add", _create, "add rules", "add --allow User:app --producer --topic orders"
    )
    for option, verb in (("--allow", "allowed"), ("--deny", "denied")):
        adding.add_argument(
            option,
            action="append",
            default=[],
            metavar="P",
            help=f"principal that is {verb} the operations, such as User:app; repeatable",
        )
    adding.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="address of the client; repeatable (default: all addresses)",
    )
    adding.add_argument(
        "--operation",
        action="append",
        default=[],
        choices=[each.text for each in AclOperation],
        metavar="OPERATION",
        help="operation that is allowed or denied; repeatable: "
        f"{', '.join(each.text for each in AclOperation)}",
    )
    adding.add_argument(
        "--producer",
        action="store_true",
        help="the operations of a producer: Write, Describe and Create on topics, Write and "
        "Describe on transactional ids",
    )
    adding.add_argument(
        "--consumer",
        action="store_true",
        help="the operations of a consumer: Read and Describe on topics, Read on groups",
    )
    _add_resources(adding)
    removing = actions.add(
        "remove", _remove, "remove rules", "remove --principal User:app --topic orders"
    )
    removing.add_argument("--principal", metavar="P", help="only the rules of this principal")
    removing.add_argument("--all", action="store_true", help="remove all rules")
    _add_resources(removing)
    _add_copying(actions)


def _add_copying(actions: Actions) -> None:
    copying = actions.add(
        "copy", _copy, "copy the rules of another cluster", "copy --source kafka:9092"
    )
    copying.add_argument(
        "--source",
        required=True,
        metavar="HOST:PORT",
        help=f"cluster to copy from: {BOOTSTRAP_HELP}",
    )
    copying.add_argument(
        "--source-config", type=Path, metavar="FILE", help=f"{CONFIG_HELP}, for the source"
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace acls`."""
    return act_on_cluster(args)


def _add_resources(parser: argparse.ArgumentParser) -> None:
    for option, metavar, what in (
        ("--topic", "TOPIC", "topic"),
        ("--group", "GROUP", "consumer group"),
        ("--transactional-id", "ID", "transactional id or of an exactly-once sink"),
    ):
        parser.add_argument(
            option,
            action="append",
            default=[],
            metavar=metavar,
            help=f"name of a {what}; repeatable",
        )
    parser.add_argument("--cluster", action="store_true", help="the cluster")
    parser.add_argument(
        "--prefixed", action="store_true", help="the names given are prefixes of resource names"
    )


def _patterns(args: argparse.Namespace) -> list[ResourcePattern]:
    kind = PatternType.PREFIXED if args.prefixed else PatternType.LITERAL
    patterns = [
        ResourcePattern(resource_type, name, kind)
        for option, resource_type in _RESOURCES
        for name in getattr(args, option)
    ]
    if args.cluster:
        patterns.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))
    return patterns


def _filters(args: argparse.Namespace) -> list[AclFilter]:
    principal = args.principal
    if principal is not None:
        principal = str(Principal.parse(principal, key="--principal"))
    patterns = _patterns(args)
    if not patterns:
        return [AclFilter(principal=principal)]
    return [
        AclFilter(
            resource_type=pattern.resource_type,
            name=pattern.name,
            pattern_type=pattern.pattern_type,
            principal=principal,
        )
        for pattern in patterns
    ]


def _list(cluster: Cluster, args: argparse.Namespace) -> None:
    found = sorted({rule for each in _filters(args) for rule in describe_rules(cluster, each)})
    if args.json:
        print_json([_as_json(binding) for binding in found])
    elif found:
        _print(found)
    else:
        write_line("no rule is found")


def _copy(cluster: Cluster, args: argparse.Namespace) -> None:
    with connect(args.source, args.source_config) as source:
        # Those of Kafka's delegation tokens and users have no meaning here.
        kinds = [kind for _, kind in _RESOURCES] + [ResourceType.CLUSTER]
        wanted = [AclFilter(resource_type=kind) for kind in kinds]
        found = sorted({rule for each in wanted for rule in describe_rules(source, each)})
    for begin in range(0, len(found), _A_REQUEST):
        create_rules(cluster, found[begin : begin + _A_REQUEST])
    if found:
        _print(found)
    write_line(f"rules copied: {len(found)}")


def _print(bindings: list[AclBinding]) -> None:
    rows = [
        (
            rule.permission.text,
            rule.principal,
            rule.operation.text,
            pattern.resource_type.text,
            pattern.name + ("…" if pattern.pattern_type is PatternType.PREFIXED else ""),
            rule.host,
        )
        for pattern, rule in bindings
    ]
    print_table(("permission", "principal", "operation", "resource", "name", "from"), rows)


def _as_json(binding: AclBinding) -> dict[str, str]:
    pattern, rule = binding
    return {
        "permission": rule.permission.text,
        "principal": rule.principal,
        "operation": rule.operation.text,
        "resource_type": pattern.resource_type.text,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern_type.text,
        "host": rule.host,
    }


def _create(cluster: Cluster, args: argparse.Namespace) -> None:
    patterns = _patterns(args)
    if not patterns:
        raise UsageError(
            "no resource is given: add --topic, --group, --transactional-id or --cluster"
        )
    who = [(name, AclPermission.ALLOW) for name in args.allow]
    who += [(name, AclPermission.DENY) for name in args.deny]
    if not who:
        raise UsageError("no principal is given: add --allow or --deny, such as --allow User:app")
    bindings = [
        AclBinding(
            pattern,
            AccessRule(
                str(Principal.parse(name, key=f"--{permission.text.lower()}")),
                host,
                operation,
                permission,
            ),
        )
        for pattern in patterns
        for name, permission in who
        for host in args.host or [WILDCARD]
        for operation in _operations(args, pattern.resource_type)
    ]
    if not bindings:
        raise UsageError("no operation is given: add --operation, --producer or --consumer")
    create_rules(cluster, bindings)
    _print(sorted(bindings))


def _operations(args: argparse.Namespace, resource_type: ResourceType) -> list[AclOperation]:
    wanted = [each for each in AclOperation if each.text in args.operation]
    if args.producer:
        wanted += _PRODUCER.get(resource_type, ())
    if args.consumer:
        wanted += _CONSUMER.get(resource_type, ())
    return list(dict.fromkeys(wanted))


def _remove(cluster: Cluster, args: argparse.Namespace) -> None:
    filters = _filters(args)
    if filters == [AclFilter()] and not args.all:
        raise UsageError("no rules are chosen: give a resource, --principal, or --all")
    removed = delete_rules(cluster, filters)
    if removed:
        _print(removed)
        write_line("these rules are removed")
    else:
        write_line("no rule is found")
