"""The table of APIs."""

import subprocess
import sys

import pytest

from storage_engine.core.features import SUPPORTED
from storage_engine.protocol.apis import registry
from storage_engine.protocol.apis.registry import (
    APIS,
    INTERNAL_RANGES,
    OWN_RANGES,
    SERVED_RANGES,
    FeatureNeed,
    is_offered,
    name_of,
    spec_for,
)


@pytest.mark.parametrize("key", APIS, ids=name_of)
def test_each_module_says_of_itself_what_the_table_says(key: int) -> None:
    spec = spec_for(key)
    entry = APIS[key]
    assert (spec.key, spec.name, spec.versions) == (key, entry.name, entry.versions)
    assert spec.first_flexible_version == entry.first_flexible_version


def test_what_clients_are_told_leaves_out_what_brokers_say_to_each_other() -> None:
    internal = {4: "LeaderAndIsr", 5: "StopReplica", 6: "UpdateMetadata", 7: "ControlledShutdown"}
    assert {key: name_of(key) for key in INTERNAL_RANGES} == internal
    assert not set(SERVED_RANGES) & set(INTERNAL_RANGES)
    assert not set(OWN_RANGES) & (set(SERVED_RANGES) | set(INTERNAL_RANGES))
    assert min(OWN_RANGES) > 10_000 > max(SERVED_RANGES), "Kafka's keys will grow"
    assert SERVED_RANGES[0] == (0, 12), "librdkafka compresses nothing without Produce 0"


def test_an_unknown_api_key_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        spec_for(999)
    assert name_of(999) == "api key 999"


def test_an_api_is_offered_from_the_level_of_its_feature_on(monkeypatch) -> None:
    need = FeatureNeed("some.version", 2)
    monkeypatch.setattr(registry, "APIS", {3: APIS[3]._replace(need=need), 4: APIS[4]})
    for level, offered in ((0, False), (1, False), (2, True), (3, True)):
        assert is_offered(3, {"some.version": level}.__getitem__) is offered
        assert is_offered(4, {}.__getitem__)


def test_each_api_needs_a_level_that_this_version_supports() -> None:
    for entry in APIS.values():
        if entry.need is not None:
            assert SUPPORTED[entry.need.feature].supports(entry.need.level)


def test_an_api_is_imported_on_first_use() -> None:
    program = (
        "import sys\n"
        "from storage_engine.protocol import framing\n"
        "from storage_engine.protocol.apis.registry import spec_for\n"
        "spec_for(0)\n"
        "assert 'storage_engine.protocol.messages.create_topics' not in sys.modules\n"
        "spec_for(19)\n"
        "assert 'storage_engine.protocol.messages.create_topics' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
