"""The Avro schemas in which producers write, by their ids, for threads that prepare batches.

    all ids of a batch are parsed -> a thread takes them from `parsed`, and nothing waits
    else `find`: some are unknown -> `_schemas` is read up to its end now -> still unknown: refused
                 some are known   -> a thread parses them                 -> they are there

An id is known to all who may write to a typed topic, whatever subject it belongs to: it says how
bytes are read that the producer has made itself. What else the schema says is told to nobody.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from storage_engine.broker.schemas.schemas_log import SchemasLog
from storage_engine.broker.shared_threads import SharedThreads
from storage_engine.core.errors import ErrorCode, InvalidRecordError, KafkaError
from storage_engine.core.fair_queue import Share
from storage_engine.core.ports import Background
from storage_engine.core.schemas.avro.schema import AvroSchema
from storage_engine.core.schemas.errors import InvalidSchemaError
from storage_engine.core.schemas.registry.writer_schemas import WriterText, writer_text
from storage_engine.net.client_log import ClientLog

MOST_PARSED, MOST_CHARACTERS = 1_000, 8 << 20
"""The most schemas that are kept parsed, and the most characters of their texts. The oldest go
first; one that is needed again is parsed again, which takes about a millisecond."""

PARSED_AT_ONCE = 1

Found = Mapping[int, AvroSchema]
_Then = Callable[[Found | KafkaError], None]

log = ClientLog(__name__)


class Writers:
    """On the event loop; threads are handed `parsed`, which never changes, but is replaced."""

    def __init__(self, schemas: SchemasLog, background: Background) -> None:
        self._schemas = schemas
        self._threads = SharedThreads(background, at_once=PARSED_AT_ONCE)
        self._parsed: dict[int, AvroSchema] = {}
        self._characters: dict[int, int] = {}
        self.unknown_ids = 0
        """How many ids were asked for that no schema has."""
        self._seen = (0, 0)
        """The generation and the changes of the state that `_parsed` was checked against."""

    @property
    def generation(self) -> int:
        """Schemas of another generation of `_schemas` are not those that ids stand for now."""
        return self._schemas.generation

    @property
    def parsed(self) -> Found:
        schemas = self._schemas
        schemas.use()
        seen = schemas.generation, schemas.changes
        if seen != self._seen:
            is_same_topic = seen[0] == self._seen[0]
            self._seen = seen
            # Those that were deleted for good are unknown, at all brokers alike.
            kept = [each for each in self._parsed if is_same_topic and schemas.state.with_id(each)]
            if len(kept) < len(self._parsed):
                self._parsed = {each: self._parsed[each] for each in kept}
                self._characters = {each: self._characters[each] for each in kept}
        return MappingProxyType(self._parsed)

    def find(self, ids: frozenset[int], share: Share, then: _Then) -> None:
        """Call `then` once, with the schemas of all ids, or the error for the producer."""
        if self._schemas.is_loaded and not self._unknown(ids):
            self._have_parsed(ids, share, then)
        elif self._schemas.is_too_large:
            then(
                KafkaError(
                    f"{self._schemas.topic} has more schemas than a broker keeps, see its log",
                    ErrorCode.POLICY_VIOLATION,
                )
            )
        else:
            self._schemas.when_read(partial(self._read, ids, share, then))

    def _unknown(self, ids: frozenset[int]) -> list[int]:
        return sorted(each for each in ids if not self._schemas.state.with_id(each))

    def _read(self, ids: frozenset[int], share: Share, then: _Then, is_read: bool) -> None:
        topic, unknown = self._schemas.topic, self._unknown(ids)
        if not is_read and (unknown or not self._schemas.is_loaded):
            # What every client answers by sending again.
            then(
                KafkaError(
                    f"{topic} can't be read now ({self._schemas.problem}): retry",
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                )
            )
        elif unknown:
            self.unknown_ids += len(unknown)
            then(
                InvalidRecordError(
                    f"no schema in {topic} has the id {unknown[0]}: register it, and serialize the "
                    "record by the id that you get"
                )
            )
        else:
            self._have_parsed(ids, share, then)

    def _have_parsed(self, ids: frozenset[int], share: Share, then: _Then) -> None:
        found: dict[int, AvroSchema] = {}
        texts: dict[int, WriterText] = {}
        parsed = self.parsed
        for each in sorted(ids):
            known = parsed.get(each)
            if known is not None:
                found[each] = known
                continue
            try:
                text = writer_text(self._schemas.state, each)
            except InvalidSchemaError:
                then(_unusable(each))
                return
            assert text is not None, "its id is known in this turn"
            texts[each] = text
        if not texts:
            then(found)
            return
        generation = self.generation

        def done(made: dict[int, AvroSchema] | KafkaError) -> None:
            if isinstance(made, dict):
                if generation == self.generation:
                    self._keep(made, texts)
                made = found | made
            then(made)

        def failed(error: Exception) -> None:
            log.error("", "schemas not parsed ids=%s", str(sorted(texts)), exc_info=error)
            then(KafkaError("a schema met an error in this broker, see its log"))

        self._threads.submit(
            share,
            partial(_parsed, texts),
            done,
            failed,
            size=sum(each.characters for each in texts.values()),
        )

    def _keep(self, made: Found, texts: Mapping[int, WriterText]) -> None:
        kept = {each: self._parsed[each] for each in self._parsed if each not in made} | dict(made)
        self._characters |= {each: texts[each].characters for each in made}
        characters = sum(self._characters[each] for each in kept)
        for oldest in list(kept)[:-1]:
            if len(kept) <= MOST_PARSED and characters <= MOST_CHARACTERS:
                break
            del kept[oldest]
            characters -= self._characters[oldest]
        self._parsed = kept
        self._characters = {each: self._characters[each] for each in kept}


def _parsed(texts: Mapping[int, WriterText]) -> dict[int, AvroSchema] | KafkaError:
    """Runs on any thread."""
    found: dict[int, AvroSchema] = {}
    for each, text in texts.items():
        try:
            found[each] = text.parsed()
        except InvalidSchemaError:
            return _unusable(each)
    return found


def _unusable(schema_id: int) -> InvalidRecordError:
    # The error itself would tell of a schema that the producer may not see.
    return InvalidRecordError(
        f"records can't be read by the schema with the id {schema_id}: it must be of type AVRO, "
        "and what it refers to must be there"
    )
