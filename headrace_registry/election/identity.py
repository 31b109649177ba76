"""Identities of registries in their group, in Confluent's JSON, and the election among them.

The leader of a generation elects: the present writer if it is one of the members, else the one
whose URL comes first. Source: Confluent's SchemaRegistryCoordinator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from storage_engine.core.schemas.registry.records import (
    ForeignRecordError,
    Json,
    encode_json,
    object_in,
)

PROTOCOL_TYPE, PROTOCOL = "sr", "v0"
DUPLICATE_URLS = 1
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A registry of the group."""

    host: str
    port: int
    scheme: str = "http"
    may_write: bool = True
    is_writer: bool = False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def document(self) -> dict[str, Json]:
        return {
            "version": _VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.may_write,
            "scheme": self.scheme,
            "leader": self.is_writer,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedWriter:
    """The word of the leader to all members."""

    error: int
    member_id: str | None
    writer: Identity | None

    def encode(self) -> bytes:
        document: dict[str, Json] = {"error": self.error, "version": _VERSION}
        if self.member_id is not None and self.writer is not None:
            document["master"] = self.member_id
            document["master_identity"] = self.writer.document()
        return encode_json(document)


def encode_identity(identity: Identity) -> bytes:
    return encode_json(identity.document())


def decode_identity(data: bytes) -> Identity:
    """ForeignRecordError for what no registry wrote."""
    return _identity(object_in(data))


def _identity(document: Json) -> Identity:
    if not isinstance(document, dict):
        raise ForeignRecordError("an identity is no object")
    host, port, scheme = (document.get(name) for name in ("host", "port", "scheme"))
    if not isinstance(host, str) or not isinstance(port, int):
        raise ForeignRecordError("an identity has no host or no port")
    return Identity(
        host=host,
        port=port,
        scheme="https" if scheme == "https" else "http",
        may_write=document.get("master_eligibility") is not False,
        is_writer=document.get("leader") is True,
    )


def decode_elected(data: bytes) -> ElectedWriter:
    """ForeignRecordError for what no registry wrote."""
    document = object_in(data)
    error, member, writer = (document.get(name) for name in ("error", "master", "master_identity"))
    return ElectedWriter(
        error=error if isinstance(error, int) else 0,
        member_id=member if isinstance(member, str) else None,
        writer=None if writer is None else _identity(writer),
    )


def elect(members: Mapping[str, Identity]) -> ElectedWriter:
    """`members`: by the ids that the group gave them."""
    eligible = {id_: each for id_, each in members.items() if each.may_write}
    present = [id_ for id_, each in eligible.items() if each.is_writer]
    chosen = (
        present[0]
        if len(present) == 1
        else min(eligible, key=lambda id_: (eligible[id_].url, id_), default=None)
    )
    writer = None if chosen is None else replace(eligible[chosen], is_writer=False)
    urls = {each.url for each in members.values()}
    error = DUPLICATE_URLS if len(urls) < len(members) else 0
    return ElectedWriter(error=error, member_id=chosen, writer=writer)
