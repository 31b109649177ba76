"""Whom a quota is for, with its names in requests and in ZooKeeper.

A user, a client id, both, or an address; each by name or as the default for those without one of
their own. Source: KIP-55, KIP-546, KIP-612.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from storage_engine.core.entity_names import escaped, unescaped
from storage_engine.core.errors import ErrorCode, KafkaError

DEFAULT = ""
"""No name is empty."""

_DEFAULT_ZNODE = "<default>"
"""No name looks so in ZooKeeper, since `<` is escaped there."""

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

NAME_MAX = 255
"""The name of a znode; longer ones would be refused late, by ZooKeeper."""


@dataclass(frozen=True, slots=True, order=True)
class QuotaEntity:
    """None: that part does not matter. DEFAULT: any name without a quota of its own."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @classmethod
    def of_request(cls, parts: Iterable[tuple[str, str | None]]) -> "QuotaEntity":
        """`parts`: type and name as in a request; None is the default. KafkaError says what is
        wrong."""
        found: dict[str, str] = {}
        for kind, name in parts:
            if kind not in (USER, CLIENT_ID, IP):
                raise _invalid(f"'{kind}' is no type of entity; there are user, client-id and ip")
            if kind in found:
                raise _invalid(f"the type '{kind}' stands twice")
            if name == "":
                raise _invalid(f"the name of the {kind} is empty")
            if name is not None and len(escaped(name)) > NAME_MAX:
                raise _invalid(f"the name of the {kind} has more than {NAME_MAX} characters")
            found[kind] = DEFAULT if name is None else name
        if not found:
            raise _invalid("it names neither a user nor a client-id nor an ip")
        if IP in found and len(found) > 1:
            raise _invalid("an ip can't be combined with a user or a client-id")
        return cls(found.get(USER), found.get(CLIENT_ID), found.get(IP))

    @property
    def parts(self) -> list[tuple[str, str | None]]:
        """As in an answer."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return [(kind, name or None) for kind, name in named if name is not None]

    @property
    def path(self) -> str:
        """Below /config, as in notifications: users/alice/clients/app."""
        if self.ip is not None:
            return f"ips/{_znode_name(self.ip)}"
        clients = None if self.client_id is None else f"clients/{_znode_name(self.client_id)}"
        if self.user is None:
            return clients or ""
        users = f"users/{_znode_name(self.user)}"
        return users if clients is None else f"{users}/{clients}"

    @classmethod
    def parse(cls, path: str) -> "QuotaEntity | None":
        """None for a path of another kind."""
        match path.split("/"):
            case ["users", user]:
                entity = cls(user=_name(user))
            case ["users", user, "clients", client_id]:
                entity = cls(user=_name(user), client_id=_name(client_id))
            case ["clients", client_id]:
                entity = cls(client_id=_name(client_id))
            case ["ips", ip]:
                entity = cls(ip=_name(ip))
            case _:
                return None
        # A name that nobody would escape like that is no name.
        return entity if entity != cls() and entity.path == path else None

    def __str__(self) -> str:
        return ", ".join(f"{kind} {name or 'default'}" for kind, name in self.parts)


def _znode_name(name: str) -> str:
    return _DEFAULT_ZNODE if name == DEFAULT else escaped(name)


def _name(znode_name: str) -> str | None:
    return DEFAULT if znode_name == _DEFAULT_ZNODE else unescaped(znode_name)


def _invalid(reason: str) -> KafkaError:
    return KafkaError(f"the entity of the quota is wrong: {reason}", ErrorCode.INVALID_REQUEST)
