"""Learns of changed settings: watches /config/changes, and reads the settings of the entity that a
notification names.

The watch is set before anything is read, and after a lost session everything known is read again;
so a broker that was away, or that was notified twice, has the settings that ZooKeeper has. Settings
that can't be applied are logged and skipped. Every broker removes notifications that it has known
for long enough, by its own clock. Source: R-TOOL1.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from storage_engine.broker import unexpected
from storage_engine.broker.settings.config_store import (
    ConfigEntity,
    ConfigStore,
    Gather,
    ListedEntities,
)
from storage_engine.core.ports import (
    Clock,
    MetadataStore,
    Scheduler,
    SessionState,
    ZkReply,
)
from storage_engine.zookeeper.admin_znodes import ConfigChangeZNode
from storage_engine.zookeeper.znode_json import ZnodeFormatError

log = logging.getLogger(__name__)

RETRY_MS = 500

KEEP_MS = 15 * 60 * 1000
"""How long a notification is kept, as in Kafka: far longer than a session lasts without an answer.
"""


class ConfigChanges:
    """A broker's view of /config/changes."""

    def __init__(
        self,
        metadata_store: MetadataStore,
        scheduler: Scheduler,
        clock: Clock,
        *,
        known: Callable[[], Iterable[ConfigEntity]],
        take: Callable[[ConfigEntity, Mapping[str, str]], None],
    ) -> None:
        """`known`: the entities whose settings this broker uses, without groups and clients, which
        are listed in ZooKeeper. `take` receives the settings each time they are read."""
        self._metadata_store = metadata_store
        self._scheduler = scheduler
        self._clock = clock
        self._store = ConfigStore(metadata_store)
        self._listed = ListedEntities(metadata_store)
        self._known = known
        self._take = take
        self._on_ready: Callable[[], None] | None = None
        self._seen: dict[str, int] = {}
        """Notification -> monotonic time in ms when it was first seen."""
        self._read_everything = True
        self._watch_number = 0
        self._closed = False

    def start(self, on_ready: Callable[[], None]) -> None:
        """Watch, and read the settings of all known entities; then call `on_ready`, once."""
        self._on_ready = on_ready
        self._metadata_store.add_state_listener(self._on_state)
        self._list()

    def close(self) -> None:
        self._closed = True
        self._listed.close()

    def refresh(self, entity: ConfigEntity, done: Callable[[], None]) -> None:
        """Read and apply the settings of one entity; `done` once that has succeeded."""

        def on_read(settings: Mapping[str, str] | None) -> None:
            if self._closed:
                return
            if settings is None:
                self._again(lambda: self.refresh(entity, done))
                return
            try:
                self._take(entity, settings)
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait are answered
                unexpected.report(f"settings of {entity} not applied", error)
            done()

        self._store.read(entity, on_read)

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            # The loss may last until notifications have come and gone.
            self._read_everything = True

    def _again(self, work: Callable[[], None]) -> None:
        self._scheduler.call_later(RETRY_MS, lambda: None if self._closed else work())

    def _list(self) -> None:
        self._watch_number += 1
        number = self._watch_number

        def on_watch() -> None:
            # Only the watch of the newest listing counts, also after failed ones.
            if not self._closed and number == self._watch_number:
                self._list()

        def on_children(reply: ZkReply) -> None:
            if self._closed or number != self._watch_number:
                return
            if not reply.ok:
                self._again(self._list)
                return
            self._read_changes(reply.children)
            self._purge(reply.children)

        self._metadata_store.children(ConfigChangeZNode.PARENT, on_children, on_watch)

    def _read_changes(self, children: Sequence[str]) -> None:
        fresh = [child for child in children if child not in self._seen]
        now_ms = self._clock.monotonic_ms()
        self._seen = {child: self._seen.get(child, now_ms) for child in children}
        if not self._read_everything:
            self._read_notifications(fresh)
            return
        self._read_everything = False
        self._listed.read(self._on_listed)

    def _on_listed(self, found: list[ConfigEntity] | None) -> None:
        if self._closed:
            return
        if found is None:
            self._read_everything = True
            self._again(self._list)
        else:
            # Known entities may have been deleted.
            self._refresh_all(dict.fromkeys([*self._known(), *found]))

    def _read_notifications(self, children: Sequence[str]) -> None:
        named: set[ConfigEntity] = set()

        def on_notification(child: str, reply: ZkReply) -> None:
            if reply.ok:
                try:
                    node = ConfigChangeZNode.decode(child, reply.data)
                except ZnodeFormatError as failure:
                    log.error("notification ignored: %s", failure)
                else:
                    entity = ConfigEntity.parse(node.entity_path)
                    if entity is not None:
                        named.add(entity)
            else:
                # Not answered; or taken away as old before it was read here for the first time.
                self._read_everything = True
                self._again(self._list)
            gather.one()

        gather = Gather(len(children), lambda: None if self._closed else self._refresh_all(named))
        for child in children:
            self._metadata_store.get(ConfigChangeZNode.path(child), partial(on_notification, child))

    def _refresh_all(self, entities: Iterable[ConfigEntity]) -> None:
        wanted = list(entities)
        gather = Gather(len(wanted), self._ready)
        for entity in wanted:
            self.refresh(entity, gather.one)

    def _ready(self) -> None:
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()

    def _purge(self, children: Sequence[str]) -> None:
        old_ms = self._clock.monotonic_ms() - KEEP_MS
        for child in children:
            if self._seen[child] <= old_ms:
                self._metadata_store.delete(ConfigChangeZNode.path(child), -1, lambda _reply: None)
