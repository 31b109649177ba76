"""The table of APIs."""

import subprocess
import sys

import pytest

from storage_engine.protocol.apis.registry import (
    APIS,
    INTERNAL_RANGES,
    OWN_RANGES,
    SERVED_RANGES,
    name_of,
    spec_for,
)
from storage_engine.protocol.apis.spec import VersionRange, newest_common_version


@pytest.mark.parametrize("key", APIS, ids=name_of)
def test_each_module_says_of_itself_what_the_table_says(key: int) -> None:
    spec = spec_for(key)
    entry = APIS[key]
    assert (spec.key, spec.name, spec.versions) == (key, entry.name, entry.versions)
    assert spec.first_flexible_version == entry.first_flexible_version


def test_what_clients_are_told_leaves_out_what_brokers_say_to_each_other() -> None:
    assert set(INTERNAL_RANGES) == {4, 5, 6, 7}
    assert not set(SERVED_RANGES) & set(INTERNAL_RANGES)
    assert not set(OWN_RANGES) & (set(SERVED_RANGES) | set(INTERNAL_RANGES))
    assert min(OWN_RANGES) > 10_000 > max(SERVED_RANGES), "Kafka's keys will grow"
    assert SERVED_RANGES[0] == (0, 12), "librdkafka compresses nothing without Produce 0"


def test_an_unknown_api_key_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        spec_for(999)
    assert name_of(999) == "api key 999"


@pytest.mark.parametrize(
    ("served", "expected"), [((0, 3), None), ((0, 4), 4), ((11, 20), 18), ((19, 20), None)]
)
def test_the_newest_common_version_is_within_both_ranges(
    served: tuple[int, int], expected: int | None
) -> None:
    assert newest_common_version(spec_for(1), served) == expected


def test_a_range_contains_both_of_its_ends() -> None:
    versions = VersionRange(4, 12)
    assert [version in versions for version in (3, 4, 12, 13)] == [False, True, True, False]
    assert str(versions) == "4-12"


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
