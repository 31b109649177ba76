"""Finds all users, client ids and addresses that have settings in ZooKeeper."""

from collections.abc import Callable, Iterable

from storage_engine.broker.settings.config_entity import ConfigEntity
from storage_engine.core.ports import MetadataStore
from storage_engine.zookeeper.flow import Flow, Flows, ZookeeperFlows

Found = list[ConfigEntity] | None


class ClientEntities:
    """Reads the folders below /config; nothing is kept."""

    def __init__(self, metadata_store: MetadataStore) -> None:
        self._zookeeper = ZookeeperFlows(metadata_store)
        self._flows = Flows()

    def read(self, done: Callable[[Found], None]) -> None:
        """None when ZooKeeper does not answer."""
        self._flows.start(self._read(), done)

    def close(self) -> None:
        self._flows.close()

    def _read(self) -> Flow[Found]:
        users = yield from self._names("/config/users")
        clients = yield from self._names("/config/clients")
        ips = yield from self._names("/config/ips")
        if users is None or clients is None or ips is None:
            return None
        of_users = yield from self._flows.together(
            self._names(f"/config/users/{user}/clients") for user in users
        )
        found = [
            *_entities("users", users),
            *_entities("clients", clients),
            *_entities("ips", ips),
        ]
        for user, names in zip(users, of_users, strict=True):
            if names is None:
                return None
            found += _entities(f"users/{user}/clients", names)
        return found

    def _names(self, path: str) -> Flow[list[str] | None]:
        reply = yield from self._zookeeper.children(path)
        if reply.is_absent:
            return []
        return list(reply.children) if reply.ok else None


def _entities(folder: str, names: Iterable[str]) -> list[ConfigEntity]:
    """Without nodes that no client has, since nobody would escape a name like theirs."""
    parsed = [ConfigEntity.parse(f"{folder}/{name}") for name in names]
    return [entity for entity in parsed if entity is not None]
