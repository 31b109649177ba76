"""Makes each version of each typed topic's schema a version of its subject `T-value`, in order.

    every PAUSE_S -> which typed topics are there, with which versions?
                  -> those that the subject lacks are registered, where this registry is the writer

What a subject has is never changed: where a version can't be registered, since the subject has an
incompatible schema or is read-only, that is a problem of the topic, told once in the log and as
long as it lasts by `problems`. A version that somebody has deleted softly is there, and stays
deleted. Each registry looks; only the writer registers.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from headrace_registry.log.writer import FencedError
from headrace_registry.schema_calls import GivenSchema, SchemaCalls
from headrace_registry.typed_topics.subject_names import subject_of
from headrace_registry.typed_topics.topic_scan import TopicScan, asked_of
from storage_engine.client.cluster import Cluster
from storage_engine.client.connection import NotServedError
from storage_engine.core.errors import ConfigError, HeadraceError
from storage_engine.core.schemas.languages import Schema, SchemaType
from storage_engine.core.schemas.registry.registry_error import RegistryError
from storage_engine.core.schemas.registry.state import RegistryState
from storage_engine.core.schemas.registry.writer_schemas import kept_texts
from storage_engine.core.typed.avro_text import avro_text
from storage_engine.core.typed.topic_schema import SchemaVersion, TopicSchema

PAUSE_S = 2.0
WORK_SHARE = 0.05
"""The most of its time that this takes, so that a cluster of many topics is asked less often."""
_END_S = 5.0


class _Version(NamedTuple):
    """The Avro schema of a version."""

    text: str
    kept: frozenset[str]
    """The forms in which a subject may have it."""


log = logging.getLogger(__name__)


class TopicSubjects:
    """One thread; `problems` and `typed` are for others, too."""

    def __init__(
        self,
        cluster: Callable[[], Cluster],
        schemas: SchemaCalls,
        look: Callable[[Callable[[RegistryState], frozenset[str]]], frozenset[str]],
        is_writer: Callable[[], bool],
    ) -> None:
        self._new_cluster = cluster
        self._schemas = schemas
        self._look = look
        self._is_writer = is_writer
        self.typed: Mapping[str, TopicSchema] = {}
        self.problems: Mapping[str, str] = {}
        """The reasons why topics' schemas are not versions of their subjects, by topic."""
        self._versions: dict[str, tuple[TopicSchema, Sequence[_Version]]] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="typed topics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ends.set()
        if self._thread.is_alive():
            self._thread.join(_END_S)

    def _run(self) -> None:
        with self._new_cluster() as cluster:
            scan = TopicScan(asked_of(cluster))
            pause_s = 0.0
            while not self._ends.wait(pause_s):
                start_s = time.monotonic()
                try:
                    self._turn(cluster, scan)
                except NotServedError:
                    log.info("these brokers have no typed topics")
                    return
                except FencedError:
                    pass
                except HeadraceError as error:
                    log.warning("typed topics are not looked at: %s", error)
                except Exception:
                    log.exception("typed topics are not looked at")
                pause_s = max(PAUSE_S, (time.monotonic() - start_s) / WORK_SHARE)

    def _turn(self, cluster: Cluster, scan: TopicScan) -> None:
        view = cluster.metadata()
        scan.scan({name: topic.topic_id for name, topic in view.topics.items()})
        self.typed = scan.typed
        self._versions = {name: each for name, each in self._versions.items() if name in scan.typed}
        problems: dict[str, str] = {}
        for topic, schema in scan.typed.items():
            if self._ends.is_set():
                return
            problem = self._problem(topic, schema)
            if problem is not None:
                problems[topic] = problem
                if self.problems.get(topic) != problem:
                    log.warning(
                        "the schema of topic %s is not registered under %s: %s",
                        topic,
                        subject_of(topic),
                        problem,
                    )
        self.problems = problems

    def _problem(self, topic: str, schema: TopicSchema) -> str | None:
        """Register what is missing; return why that can't be."""
        subject = subject_of(topic)
        try:
            for text in self._missing(topic, schema):
                given = GivenSchema(schema=Schema(SchemaType.AVRO, text))
                if self._is_writer():
                    found = self._schemas.register(
                        subject, given, normalize=False, is_of_topic=True
                    )
                    log.info("topic %s is registered under %s: id %s", topic, subject, found)
                    continue
                candidate = self._schemas.candidate(subject, given, normalize=False)
                reasons = self._schemas.reasons(candidate, is_of_topic=True)
                if reasons:
                    return reasons[0]
        except (ConfigError, RegistryError) as error:
            return str(error)
        return None

    def _missing(self, topic: str, schema: TopicSchema) -> Sequence[str]:
        """The texts of the versions behind the last one that the subject has. ConfigError for one
        that Avro can't have."""
        known = self._versions.get(topic)
        if known is None or known[0] != schema:
            known = schema, [_version(schema, each, topic) for each in schema.versions]
            self._versions[topic] = known
        there = self._look(lambda state: texts_of(state, subject_of(topic)))
        missing: list[str] = []
        for version in reversed(known[1]):
            if not version.kept.isdisjoint(there):
                break
            missing.append(version.text)
        return missing[::-1]


def _version(schema: TopicSchema, version: SchemaVersion, topic: str) -> _Version:
    text = avro_text(schema, version, topic)
    return _Version(text, kept_texts(text))


def texts_of(state: RegistryState, subject: str) -> frozenset[str]:
    """The texts of all versions of the subject, also of those that are soft deleted."""
    return frozenset(each.schema.text for each in state.versions(subject, with_deleted=True))
