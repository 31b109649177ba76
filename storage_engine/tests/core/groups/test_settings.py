"""The policy of migration says which way a group may go."""

import pytest

from storage_engine.core.groups.assignors.assignors import ASSIGNORS
from storage_engine.core.groups.settings import ConsumerSettings, MigrationPolicy


@pytest.mark.parametrize(
    ("value", "upgrades", "downgrades"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
    ],
)
def test_a_policy_allows_its_directions(value, upgrades, downgrades):
    policy = MigrationPolicy(value)
    assert (policy.upgrades, policy.downgrades) == (upgrades, downgrades)


def test_the_default_assignors_are_there():
    assert [*ConsumerSettings().assignors] == [*ASSIGNORS]
