"""Versions of an API."""

import pytest

from storage_engine.protocol.apis.registry import spec_for
from storage_engine.protocol.apis.spec import VersionRange, newest_common_version


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
