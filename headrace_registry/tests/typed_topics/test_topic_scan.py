"""Typed topics are found with few requests, and those of other clusters' brokers not at all."""

from collections.abc import Sequence
from uuid import UUID, uuid4

from headrace_registry.typed_topics.topic_scan import MOST_REQUESTS, TopicScan
from storage_engine.core.errors import ErrorCode
from storage_engine.core.typed.ddl import parse_ddl
from storage_engine.core.typed.topic_schema import TopicSchema, new_schema
from storage_engine.protocol.apis.describe_schemas import MAX_TOPICS, DescribedSchema

SCHEMA = new_schema(parse_ddl("id INT"), ["id"])
EVOLVED = SCHEMA.evolved(parse_ddl("id INT, more INT"))


class Brokers:
    """Topics with their schemas, and the requests about them."""

    def __init__(self) -> None:
        self.ids: dict[str, UUID] = {}
        self.schemas: dict[str, TopicSchema | None] = {}
        self.asked: list[Sequence[str]] = []
        self.failing: set[str] = set()

    def put(self, topic: str, schema: TopicSchema | None) -> None:
        self.ids[topic] = uuid4()
        self.schemas[topic] = schema

    def describe(self, topics: Sequence[str]) -> list[DescribedSchema]:
        self.asked.append(topics)
        return [
            DescribedSchema(topic=each, error_code=int(ErrorCode.LEADER_NOT_AVAILABLE))
            if each in self.failing
            else DescribedSchema(
                topic=each,
                topic_id=self.ids[each],
                schema=None if (schema := self.schemas[each]) is None else schema.to_json(),
            )
            for each in topics
        ]


def scanned(brokers: Brokers, scan: TopicScan) -> list[str]:
    """The topics that a scan asked about."""
    brokers.asked.clear()
    scan.scan(brokers.ids)
    return [each for request in brokers.asked for each in request]


def test_untyped_topics_are_asked_about_once_and_typed_ones_again() -> None:
    brokers = Brokers()
    brokers.put("typed", SCHEMA)
    brokers.put("plain", None)
    brokers.put("__consumer_offsets", None)
    scan = TopicScan(brokers.describe)
    assert sorted(scanned(brokers, scan)) == ["plain", "typed"]
    assert scan.typed == {"typed": SCHEMA}
    brokers.schemas["typed"] = EVOLVED
    assert scanned(brokers, scan) == ["typed"]
    assert scan.typed == {"typed": EVOLVED}


def test_a_topic_that_was_made_anew_is_asked_about_again_and_a_deleted_one_forgotten() -> None:
    brokers = Brokers()
    brokers.put("a", None)
    brokers.put("b", SCHEMA)
    scan = TopicScan(brokers.describe)
    scanned(brokers, scan)
    brokers.put("a", SCHEMA)
    del brokers.ids["b"]
    assert scanned(brokers, scan) == ["a"]
    assert scan.typed == {"a": SCHEMA}


def test_a_scan_has_few_requests_and_every_topic_has_its_turn() -> None:
    brokers = Brokers()
    count = MOST_REQUESTS * MAX_TOPICS + 250
    for number in range(count):
        brokers.put(f"t{number}", SCHEMA)
    scan = TopicScan(brokers.describe)
    asked: set[str] = set()
    for turn in range(5):
        asked |= set(scanned(brokers, scan))
        assert len(brokers.asked) <= MOST_REQUESTS
        assert all(len(each) <= MAX_TOPICS for each in brokers.asked)
        assert scan.is_complete is (turn > 0)
    assert asked == set(brokers.ids) == set(scan.typed)
    asked.clear()
    for name in brokers.ids:
        brokers.schemas[name] = EVOLVED
    for _ in range(4):
        scanned(brokers, scan)
    assert all(each == EVOLVED for each in scan.typed.values())


def test_an_error_of_one_topic_is_asked_about_again() -> None:
    brokers = Brokers()
    brokers.put("a", SCHEMA)
    brokers.put("b", SCHEMA)
    brokers.failing.add("a")
    scan = TopicScan(brokers.describe)
    scanned(brokers, scan)
    assert scan.typed == {"b": SCHEMA}
    brokers.failing.clear()
    scanned(brokers, scan)
    assert set(scan.typed) == {"a", "b"}
