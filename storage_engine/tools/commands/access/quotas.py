"""List, set and remove the quotas of users, client ids and addresses.

A quota limits the use that a client makes of each broker. A client above its quota is throttled:
each response names the time to wait (throttle_time_ms), during which the broker reads no further
request from the client. Of several quotas the most specific one applies: the quota of a user and
client id together, then the user's, then the client id's. A quota of a name overrides a default.

actions:
  list     list all quotas
  add      set quotas, and leave the others as they are
  remove   remove quotas

examples:
  headrace quotas list --bootstrap-server 127.0.0.1:9092
  headrace quotas add --bootstrap-server 127.0.0.1:9092 --user alice --producer-byte-rate 1048576
  headrace quotas add --bootstrap-server 127.0.0.1:9092 --client-id-default --request-percentage 50
  headrace quotas remove --bootstrap-server 127.0.0.1:9092 --user alice --producer-byte-rate
"""

import argparse

from storage_engine.client.admin.client_quotas import (
    ClientQuota,
    alter_client_quotas,
    describe_client_quotas,
)
from storage_engine.client.cluster import Cluster
from storage_engine.core.quotas import CLIENT_ID, DEFAULT, IP, USER, QuotaEntity, QuotaKey
from storage_engine.tools.actions import Actions, act_on_cluster
from storage_engine.tools.arguments import add_json
from storage_engine.tools.document import Document
from storage_engine.tools.errors import UsageError
from storage_engine.tools.table import print_json, print_table, write_line

_MEANINGS = {
    QuotaKey.PRODUCED: ("BYTES", "bytes of records that may be produced per second"),
    QuotaKey.CONSUMED: ("BYTES", "bytes of records that may be fetched per second"),
    QuotaKey.REQUESTS: ("PERCENT", "percent of a processor that a broker may spend on the client"),
    QuotaKey.MUTATIONS: ("N", "partitions that may be created or deleted per second"),
    QuotaKey.CONNECTIONS: ("N", "connections that an address may open per second"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace quotas`: each action has its own."""
    actions = Actions(parser, "quotas")
    add_json(actions.add("list", _list, "list all quotas", "list"))
    adding = actions.add(
        "add",
        _set,
        "set quotas, and leave the others as they are",
        "add --user alice --producer-byte-rate 1048576",
    )
    _add_entity(adding)
    for key, (unit, meaning) in _MEANINGS.items():
        adding.add_argument(_option(key), type=float, metavar=unit, help=meaning)
    removing = actions.add(
        "remove", _remove, "remove quotas", "remove --user alice --producer-byte-rate"
    )
    _add_entity(removing)
    for key in _MEANINGS:
        removing.add_argument(
            _option(key),
            action="store_true",
            help=f"remove the quota {key.value} (default: all quotas)",
        )


def run(args: argparse.Namespace) -> int:
    """Run `headrace quotas`."""
    return act_on_cluster(args)


def _add_entity(parser: argparse.ArgumentParser) -> None:
    for option, metavar, whom, others in (
        ("--user", "NAME", "the user with this name", "each user without quotas of its own"),
        ("--client-id", "ID", "the client.id with this name", "each other client.id"),
        ("--ip", "ADDRESS", "connections from this address", "each other address"),
    ):
        group = parser.add_mutually_exclusive_group()
        group.add_argument(option, metavar=metavar, help=f"quotas of {whom}")
        group.add_argument(
            f"{option}-default", action="store_true", help=f"default quotas of {others}"
        )


def _option(key: QuotaKey) -> str:
    return f"--{key.value.replace('_', '-')}"


def _entity(args: argparse.Namespace) -> QuotaEntity:
    """Return the entity of the arguments; UsageError where none is named."""
    parts: list[tuple[str, str | None]] = []
    for kind in (USER, CLIENT_ID, IP):
        name = getattr(args, kind.replace("-", "_"))
        if name == DEFAULT:
            raise UsageError(f"--{kind} is empty; give a name, or --{kind}-default")
        if name is not None or getattr(args, f"{kind.replace('-', '_')}_default"):
            parts.append((kind, name))
    if not parts:
        raise UsageError(
            "no user, client id or address is given: add --user, --client-id, both, or --ip, "
            "or the option of its default, such as --user-default"
        )
    return QuotaEntity.of_request(parts)


def _given(args: argparse.Namespace) -> dict[QuotaKey, float]:
    values = {key: getattr(args, key.value) for key in QuotaKey}
    return {key: value for key, value in values.items() if value not in (None, False)}


def _list(cluster: Cluster, args: argparse.Namespace) -> None:
    quotas = describe_client_quotas(cluster)
    if args.json:
        print_json([_as_json(quota) for quota in quotas])
    elif quotas:
        rows = [
            (*_names(quota.entity), name, f"{value:g}")
            for quota in quotas
            for name, value in sorted(quota.values.items())
        ]
        print_table(("user", "client id", "ip", "quota", "a second"), rows)
    else:
        write_line("there are no quotas")


def _as_json(quota: ClientQuota) -> Document:
    return {
        "entity": [{"type": kind, "name": name} for kind, name in quota.entity.parts],
        "quotas": dict(quota.values),
    }


def _names(entity: QuotaEntity) -> tuple[str, str, str]:
    return _shown(entity.user), _shown(entity.client_id), _shown(entity.ip)


def _shown(name: str | None) -> str:
    if name is None:
        return "-"
    return "(default)" if name == DEFAULT else name


def _set(cluster: Cluster, args: argparse.Namespace) -> None:
    entity, values = _entity(args), _given(args)
    if not values:
        options = ", ".join(_option(key) for key in QuotaKey)
        raise UsageError(f"no quota is given: add one or more of {options}")
    alter_client_quotas(cluster, entity, {key.value: value for key, value in values.items()})
    write_line(f"quotas of {entity} are set")


def _remove(cluster: Cluster, args: argparse.Namespace) -> None:
    entity = _entity(args)
    names = [key.value for key in _given(args)]
    if not names:
        known = next((q for q in describe_client_quotas(cluster) if q.entity == entity), None)
        if known is None:
            write_line(f"{entity} has no quotas")
            return
        names = sorted(known.values)
    alter_client_quotas(cluster, entity, {}, remove=names)
    write_line(f"quotas of {entity} are removed: {', '.join(names)}")
