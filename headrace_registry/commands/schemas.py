"""List, show, check, register and delete the schemas of a registry, whoever's registry it is.

actions:
  list      the subjects that you may see, with their latest version
  show      a schema, by its subject or its id
  check     whether a schema could be registered: the exit status is 1 when it is not compatible
  register  make a schema a version of a subject, and print its id
  topics    the typed topics, and why the schema of one is not registered
  delete    delete a subject or a version; with --permanent what was deleted before

examples:
  headrace schemas list --cluster ./cluster
  headrace schemas show clicks-value --registry http://127.0.0.1:8081
  headrace schemas check clicks-value click.avsc --registry http://127.0.0.1:8081
  headrace schemas register clicks-value click.avsc --registry http://127.0.0.1:8081
  headrace schemas register users-value user.proto --type PROTOBUF \\
      --reference address.proto=address.proto:1 --registry http://127.0.0.1:8081
  headrace schemas delete clicks-value --version 2 --registry http://127.0.0.1:8081
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from storage_engine.client.schema_registry_http import (
    JsonAnswer,
    RegistryAddress,
    RegistryHttp,
    SchemaRegistryError,
    quoted_path,
)
from storage_engine.core.printable import printable
from storage_engine.tools.actions import Actions
from storage_engine.tools.arguments import add_json
from storage_engine.tools.document import Document
from storage_engine.tools.errors import CommandError, UsageError
from storage_engine.tools.local.local_cluster import LocalCluster
from storage_engine.tools.registry_address import registry_address
from storage_engine.tools.table import print_json, print_rows, write_line

_MOST_BYTES = 5 << 20
_TYPES = ("AVRO", "JSON", "PROTOBUF")
_LATEST = "latest"

Act = Callable[[RegistryHttp, argparse.Namespace], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `headrace schemas`: each action has its own."""
    actions = Actions(parser, "schemas")
    listing = _add(actions, "list", _list, "list the subjects that you may see")
    listing.add_argument("--deleted", action="store_true", help="list soft deleted ones, too")
    add_json(listing)
    showing = _add(actions, "show", _show, "show a schema")
    showing.add_argument("subject", nargs="?", metavar="SUBJECT", help="subject of the schema")
    showing.add_argument("--id", type=int, metavar="ID", help="id of the schema")
    _add_version(showing, f"version of the subject (default {_LATEST})")
    add_json(showing)
    checking = _add(actions, "check", _check, "check whether a schema is compatible")
    _add_schema(checking)
    _add_version(checking, "version to compare with (default: those that the level wants)")
    add_json(checking)
    registering = _add(actions, "register", _register, "register a schema")
    _add_schema(registering)
    add_json(registering)
    topics = _add(actions, "topics", _topics, "list the typed topics and their subjects")
    add_json(topics)
    deleting = _add(actions, "delete", _delete, "delete a subject or a version of it")
    deleting.add_argument("subject", metavar="SUBJECT", help="subject to delete")
    _add_version(deleting, "version to delete (default: all)")
    deleting.add_argument(
        "--permanent",
        action="store_true",
        help="delete for good what was deleted before; records that were written with it can't be "
        "read any more",
    )
    add_json(deleting)


def _add(actions: Actions, name: str, act: Act, summary: str) -> argparse.ArgumentParser:
    parser = actions.add(name, lambda *_: None, summary, asks_brokers=False)
    parser.set_defaults(act=act)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument(
        "--registry", metavar="URL", help="where the registry is, several instances with commas"
    )
    which.add_argument(
        "--cluster", type=Path, metavar="DIR", help="local cluster, for its own registry"
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="properties file with sasl.username and sasl.password for the log-in, and the "
        "certificates of ssl.truststore.location or ssl.ca.location",
    )
    return parser


def _add_version(parser: argparse.ArgumentParser, words: str) -> None:
    parser.add_argument("--version", metavar="VERSION", help=words)


def _add_schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", metavar="SUBJECT", help="subject of the schema")
    parser.add_argument("file", metavar="FILE", help="file with the schema; - for stdin")
    parser.add_argument(
        "--type", choices=_TYPES, default=_TYPES[0], help="language of the schema (default AVRO)"
    )
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        metavar="NAME=SUBJECT:VERSION",
        help="schema that this one refers to by the name; repeatable",
    )
    parser.add_argument(
        "--normalize", action="store_true", help="in its normal form, so that order is no matter"
    )


def run(args: argparse.Namespace) -> int:
    """Run `headrace schemas`."""
    http = RegistryHttp(_address(args))
    try:
        act: Act = args.act
        return act(http, args)
    except SchemaRegistryError as error:
        raise CommandError(str(error)) from None
    finally:
        http.close()


def _address(args: argparse.Namespace) -> RegistryAddress:
    config, given = args.command_config, args.registry
    if given is None:
        cluster = LocalCluster(args.cluster)
        registry = cluster.state.registry
        if registry is None:
            raise CommandError(
                f"the cluster in '{args.cluster}' has no registry; start it with: "
                f"headrace up --dir {args.cluster} --registry"
            )
        given, config = registry.url, config or cluster.admin_config(cluster.state)
    return registry_address(given, config, option="--registry")


# --- actions ---


def _list(http: RegistryHttp, args: argparse.Namespace) -> int:
    deleted = "&deleted=true" if args.deleted else ""
    found = _rows(http.ask("GET", f"/schemas?latestOnly=true{deleted}"))
    rows: list[Document] = [
        {
            "subject": each.get("subject"),
            "version": each.get("version"),
            "id": each.get("id"),
            "type": each.get("schemaType", _TYPES[0]),
            **({"deleted": each.get("deleted", False)} if args.deleted else {}),
        }
        for each in found
    ]
    columns = ("subject", "version", "id", "type", *(["deleted"] if args.deleted else []))
    print_rows(columns, rows, as_json=args.json)
    return 0


def _topics(http: RegistryHttp, args: argparse.Namespace) -> int:
    rows: list[Document] = [
        {
            "topic": each.get("topic"),
            "subject": each.get("subject"),
            "version": each.get("schemaVersion"),
            "problem": each.get("problem") or ("" if not args.json else None),
        }
        for each in _rows(http.ask("GET", "/typed-topics"))
    ]
    print_rows(("topic", "subject", "version", "problem"), rows, as_json=args.json)
    return 0


def _show(http: RegistryHttp, args: argparse.Namespace) -> int:
    if (args.subject is None) == (args.id is None):
        raise UsageError("give a SUBJECT or --id")
    if args.id is not None:
        found = _object(http.ask("GET", f"/schemas/ids{quoted_path(args.id)}"))
    else:
        place = quoted_path(args.subject, "versions", args.version or _LATEST)
        found = _object(http.ask("GET", f"/subjects{place}"))
    if args.json:
        print_json(found)
    else:
        for line in str(found.get("schema", "")).splitlines():
            write_line(printable(line))
    return 0


def _check(http: RegistryHttp, args: argparse.Namespace) -> int:
    version = () if args.version is None else (args.version,)
    place = quoted_path("subjects", args.subject, "versions", *version)
    query = "?verbose=true" + ("&normalize=true" if args.normalize else "")
    found = _object(http.ask("POST", f"/compatibility{place}{query}", _body(args)))
    reasons = found.get("messages") or []
    if args.json:
        print_json(found)
    elif found.get("is_compatible") is True:
        write_line("compatible")
    else:
        write_line("not compatible")
        for reason in reasons if isinstance(reasons, list) else []:
            write_line(printable(str(reason)))
    return 0 if found.get("is_compatible") is True else 1


def _register(http: RegistryHttp, args: argparse.Namespace) -> int:
    place = quoted_path(args.subject, "versions")
    query = "?normalize=true" if args.normalize else ""
    found = _object(http.ask("POST", f"/subjects{place}{query}", _body(args)))
    if args.json:
        print_json(found)
    else:
        write_line(f"subject '{printable(args.subject)}' has the schema with id {found.get('id')}")
    return 0


def _delete(http: RegistryHttp, args: argparse.Namespace) -> int:
    version = () if args.version is None else ("versions", args.version)
    query = "?permanent=true" if args.permanent else ""
    found = http.ask("DELETE", f"/subjects{quoted_path(args.subject, *version)}{query}")
    versions = found if isinstance(found, list) else [found]
    if args.json:
        print_json(versions)
    else:
        words = ", ".join(str(each) for each in versions)
        kind = "permanently" if args.permanent else "softly: ids stay readable"
        write_line(f"deleted of subject '{printable(args.subject)}' version {words} ({kind})")
    return 0


def _body(args: argparse.Namespace) -> JsonAnswer:
    references: list[JsonAnswer] = [_reference(text) for text in args.reference]
    body: dict[str, JsonAnswer] = {"schema": _text(args.file)}
    if args.type != _TYPES[0]:
        body["schemaType"] = args.type
    if references:
        body["references"] = references
    return body


def _text(name: str) -> str:
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_MOST_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise CommandError(f"{name}: the schema has more than {_MOST_BYTES} bytes")
        return data.decode()
    except UnicodeDecodeError:
        raise CommandError(f"{name}: the schema is no text in UTF-8") from None
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror or error}") from None


def _reference(text: str) -> JsonAnswer:
    name, equals, place = text.partition("=")
    subject, colon, version = place.rpartition(":")
    if not equals or not colon or not name or not subject or not version.isdecimal():
        raise UsageError(f"--reference '{text}' is not of the form NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


def _object(answer: JsonAnswer) -> dict[str, JsonAnswer]:
    if not isinstance(answer, dict):
        raise CommandError("the registry's answer is not the object that it should be")
    return answer


def _rows(answer: JsonAnswer) -> list[dict[str, JsonAnswer]]:
    if not isinstance(answer, list):
        raise CommandError("the registry's answer is not the list that it should be")
    return [_object(each) for each in answer]
