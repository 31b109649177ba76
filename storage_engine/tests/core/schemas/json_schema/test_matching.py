"""A partner is given up when its holder can have another one."""

import pytest

from storage_engine.core.schemas.json_schema.matching import largest_matching


@pytest.mark.parametrize(
    ("edges", "count", "largest"),
    [
        ([], 0, 0),
        ([[], [0]], 1, 1),
        ([[0], [0]], 1, 1),
        ([[0, 1], [0]], 2, 2),
        ([[0, 1], [0, 2], [0]], 3, 3),
        ([[0, 1], [1, 2], [2, 3], [0], [1]], 4, 4),
    ],
)
def test_the_largest_matching_is_found(edges, count, largest):
    assert largest_matching(edges, count) == largest
