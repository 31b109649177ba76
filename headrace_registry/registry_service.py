"""One registry without its HTTP: the follower, the membership, the way of changes."""

import logging
from collections.abc import Callable
from typing import TypeVar

from headrace_registry.election.identity import Identity
from headrace_registry.election.member import RegistryMember
from headrace_registry.forwarding import Forwarded, Forwarding, RawRequest
from headrace_registry.log.follower import Follower
from headrace_registry.log.schemas_topic import ensure_topic
from headrace_registry.log.writer import SchemasWriter
from headrace_registry.registry_settings import RegistrySettings
from headrace_registry.schema_calls import SchemaCalls
from headrace_registry.typed_topics.column_fit import column_misfit
from headrace_registry.typed_topics.topic_subjects import TopicSubjects
from headrace_registry.writes import Plan, Writes
from storage_engine.client.cluster import DEADLINE_MS, Cluster
from storage_engine.client.security.security_rows import Given
from storage_engine.core.schemas.registry.records import Json
from storage_engine.core.schemas.registry.state import RegistryState
from storage_engine.net.deadline import Deadline

CLIENT_ID = "headrace-registry"
START_TIMEOUT_MS = 60_000
_REQUEST_GRACE_MS = 10_000

log = logging.getLogger(__name__)
Found = TypeVar("Found")


class RegistryService:
    """For any number of threads, after `start`."""

    def __init__(self, settings: RegistrySettings, producer_security: Given, port: int) -> None:
        """`producer_security`: the settings of security, for the writer; `port`: the bound one."""
        self._settings = settings
        self._producer_settings = {
            **producer_security,
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": CLIENT_ID,
            "transactional.id": settings.transactional_id,
        }
        self._follower = Follower(self._cluster, settings.topic)
        identity = Identity(
            host=settings.advertised_host or settings.host,
            port=settings.advertised_port or port,
            scheme="https" if settings.uses_tls else "http",
            may_write=settings.may_write,
        )
        self.writes = Writes(self._follower, Forwarding(settings.ca), self._take_over, self._fenced)
        self._member = RegistryMember(
            self._cluster,
            settings.group,
            identity,
            session_timeout_ms=settings.session_timeout_ms,
            on_role=lambda writer, is_writer: self.writes.elected(writer, is_writer),
        )
        self.schemas = SchemaCalls(
            self._follower,
            self.writes,
            lambda subject, parsed: column_misfit(self.topics.typed, subject, parsed),
        )
        self.topics = TopicSubjects(
            self._cluster, self.schemas, self.look, lambda: self.writes.is_writer
        )

    def start(self) -> None:
        """Make the topic if it is not there, read it whole, and join the others."""
        with self._cluster() as cluster:
            ensure_topic(cluster, self._settings.topic)
            self._follower.start()
            self._follower.read_to_end(cluster, Deadline.after(START_TIMEOUT_MS))
        skipped = self.look(lambda state: state.skipped)
        if skipped:
            log.warning("%d records were skipped: damaged, or not served here", skipped)
        self._member.start()
        if self._settings.has_typed_topics:
            self.topics.start()

    def close(self) -> None:
        self.topics.close()
        self._member.close()
        self.writes.close()
        self._follower.close()

    def look(self, question: Callable[[RegistryState], Found]) -> Found:
        return self._follower.look(question)

    @property
    def position(self) -> int:
        """How far `_schemas` is read, exclusive."""
        return self._follower.position

    def change(self, raw: RawRequest, plan: Plan) -> "Json | Forwarded":
        return self.writes.do(raw, lambda: self.writes.change_alone(plan))

    def _cluster(self) -> Cluster:
        return Cluster(
            self._settings.bootstrap_servers,
            client_id=CLIENT_ID,
            # A JoinGroup waits for the others as long as a session lasts.
            request_timeout_ms=self._settings.session_timeout_ms + _REQUEST_GRACE_MS,
            deadline_ms=max(DEADLINE_MS, self._settings.session_timeout_ms + _REQUEST_GRACE_MS),
            security=self._settings.security,
        )

    def _take_over(self) -> SchemasWriter:
        with self._cluster() as cluster:
            return SchemasWriter.take_over(
                self._producer_settings, self._settings.topic, self._follower, cluster
            )

    def _fenced(self) -> None:
        self._member.check_now()
