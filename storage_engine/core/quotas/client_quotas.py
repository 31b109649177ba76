"""The quotas of all users and client ids, and which of them counts for a client.

The most exact one counts, and says with whom the client shares it (KIP-55):

    /config/users/<user>/clients/<client-id>            both by name: this pair
    /config/users/<user>/clients/<default>              this pair
    /config/users/<user>                                all client ids of this user
    /config/users/<default>/clients/<client-id>         this pair
    /config/users/<default>/clients/<default>           this pair
    /config/users/<default>                             all client ids of this user
    /config/clients/<client-id>                         all users of this client id
    /config/clients/<default>                           all users of this client id
"""

from collections.abc import Mapping
from typing import NamedTuple

from storage_engine.core.quotas.quota_entity import DEFAULT, QuotaEntity
from storage_engine.core.quotas.quota_keys import QuotaKey, Quotas

CACHED_MAX = 10_000
"""Clients choose their ids, so what is kept for each of them needs a bound."""


class Sharing(NamedTuple):
    """Who shares a bound; an empty name: all of them."""

    user: str
    client_id: str


class Limit(NamedTuple):
    """A bound in units a second, and those who share it."""

    bound: float
    sharing: Sharing


class ClientQuotas:
    """By entity; empty until somebody sets one."""

    def __init__(self) -> None:
        self._of: dict[QuotaEntity, Quotas] = {}
        self._keys: frozenset[QuotaKey] = frozenset()
        self._limits: dict[tuple[QuotaKey, str, str], Limit | None] = {}

    def set(self, entity: QuotaEntity, quotas: Quotas) -> None:
        """Replaces those of the entity."""
        if quotas:
            self._of[entity] = dict(quotas)
        else:
            self._of.pop(entity, None)
        self._keys = frozenset(key for each in self._of.values() for key in each)
        self._limits.clear()

    @property
    def all(self) -> Mapping[QuotaEntity, Quotas]:
        return self._of

    @property
    def keys(self) -> frozenset[QuotaKey]:
        """Those of which there is any quota at all."""
        return self._keys

    def limit(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        """What bounds this client; None when nothing does."""
        if key not in self._keys:
            return None
        asked = (key, user, client_id)
        try:
            return self._limits[asked]
        except KeyError:
            pass
        if len(self._limits) >= CACHED_MAX:
            self._limits.clear()
        limit = self._limits[asked] = self._found(key, user, client_id)
        return limit

    def limit_of_ip(self, ip: str) -> float | None:
        """New connections a second; None when nothing bounds them."""
        for name in (ip, DEFAULT):
            bound = self._of.get(QuotaEntity(ip=name), {}).get(QuotaKey.CONNECTIONS)
            if bound is not None:
                return bound
        return None

    def _found(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        pair, of_user, of_client = (
            Sharing(user, client_id),
            Sharing(user, ""),
            Sharing("", client_id),
        )
        for entity, sharing in (
            (QuotaEntity(user, client_id), pair),
            (QuotaEntity(user, DEFAULT), pair),
            (QuotaEntity(user), of_user),
            (QuotaEntity(DEFAULT, client_id), pair),
            (QuotaEntity(DEFAULT, DEFAULT), pair),
            (QuotaEntity(DEFAULT), of_user),
            (QuotaEntity(None, client_id), of_client),
            (QuotaEntity(None, DEFAULT), of_client),
        ):
            bound = self._of.get(entity, {}).get(key)
            if bound is not None:
                return Limit(bound, sharing)
        return None
