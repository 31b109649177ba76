"""What brokers tell of settings: where each value comes from, and which resources have any."""

from storage_engine.core.errors import ErrorCode
from storage_engine.protocol.messages import list_config_resources
from storage_engine.tests.broker.settings.settings_requests import (
    BROKER,
    SET,
    SOON_MS,
    TOPIC,
    alter,
    describe,
)


def test_sources_and_synonyms_tell_where_a_value_comes_from(topic):
    alter(topic, 1, BROKER, "1", ("log.segment.bytes", SET, "1000"))
    alter(topic, 1, BROKER, "", ("log.segment.bytes", SET, "2000"))
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "3000"))
    topic.loop.run_for(SOON_MS)
    own = describe(topic, 1, TOPIC, "t")["segment.bytes"]
    assert (own.value, own.config_source, own.read_only) == ("3000", 1, False)
    assert [(s.name, s.value, s.source) for s in own.synonyms] == [
        ("segment.bytes", "3000", 1),
        ("log.segment.bytes", "1000", 2),
        ("log.segment.bytes", "2000", 3),
        ("log.segment.bytes", str(1 << 30), 5),
    ]
    broker = describe(topic, 1, BROKER, "1")
    assert (broker["log.segment.bytes"].value, broker["log.segment.bytes"].config_source) == (
        "1000",
        2,
    )
    assert (broker["broker.id"].config_source, broker["broker.id"].read_only) == (4, True)
    assert all(entry.documentation for entry in broker.values())
    assert describe(topic, 2, BROKER, "2")["log.segment.bytes"].config_source == 3
    assert [(e.name, e.config_source) for e in describe(topic, 3, BROKER, "").values()] == [
        ("log.segment.bytes", 3)
    ]


def resources(topic, version=1, **fields):
    request = list_config_resources.ListConfigResourcesRequest(**fields)
    answer = topic.answer(topic.ask(1, list_config_resources.API, version, request))
    rows = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    return answer.error_code, rows


def test_resources_with_settings_are_topics_and_brokers(topic):
    brokers = ["1", "2", "3"]
    assert resources(topic, resource_types=[2]) == (0, [(2, "t")])
    assert resources(topic, resource_types=[]) == (
        0,
        [(2, "t"), *((4, name) for name in brokers), *((8, name) for name in brokers)],
    )
    # Client metrics have none, and version 0 asks for them alone.
    assert resources(topic, resource_types=[16, 32]) == (0, [])
    assert resources(topic, version=0) == (0, [])
    assert resources(topic, resource_types=[99]) == (ErrorCode.UNSUPPORTED_VERSION, [])
