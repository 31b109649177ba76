"""The levels of features: which are used, and which may be raised or lowered (KIP-584)."""

import pytest

from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.features import (
    FEATURES,
    FIRST_FEATURES,
    GROUP_VERSION,
    NEWEST_LEVELS,
    SUPPORTED,
    SUPPORTED_BY_FIRST_RELEASE,
    TRANSACTION_VERSION,
    FeatureLevels,
    FeatureUpdate,
    FinalizedFeatures,
    KnownFeature,
    UnsupportedFeatureError,
    UpgradeType,
    check_supported,
    unsupported_feature,
    updated_levels,
)
from storage_engine.core.ids import BrokerId

UP, SAFE, UNSAFE = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE, UpgradeType.UNSAFE_DOWNGRADE
OF_TEST = {
    "a": KnownFeature(FeatureLevels(0, 3), lossless_from=2),
    "b": KnownFeature(FeatureLevels(0, 3), lossless_from=0),
}
ALL = {name: each.supported for name, each in OF_TEST.items()}


ONE_BROKER = {BrokerId(1): ALL}


def updated(levels, *updates, brokers=ONE_BROKER):
    return updated_levels(levels, [FeatureUpdate(*each) for each in updates], brokers, OF_TEST)


def refusal(levels, *updates, brokers=ONE_BROKER):
    with pytest.raises(KafkaError) as failure:
        updated(levels, *updates, brokers=brokers)
    assert failure.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert "\n" not in str(failure.value)
    return str(failure.value)


def test_a_feature_that_is_not_written_is_at_its_lowest_level():
    finalized = FinalizedFeatures({}, 3)
    assert finalized.level(GROUP_VERSION) == 0
    assert finalized.level(TRANSACTION_VERSION) == 2
    assert finalized.level("what nobody knows") == 0
    assert FinalizedFeatures({GROUP_VERSION: 1}, 3).level(GROUP_VERSION) == 1


def test_the_first_release_supports_exactly_the_levels_at_which_its_clusters_begin():
    for name, (lowest, _) in SUPPORTED.items():
        assert FIRST_FEATURES.level(name) == lowest
    assert unsupported_feature(SUPPORTED_BY_FIRST_RELEASE, FIRST_FEATURES.levels) is None
    assert unsupported_feature(SUPPORTED_BY_FIRST_RELEASE, NEWEST_LEVELS) == GROUP_VERSION


def test_this_version_supports_the_levels_of_new_clusters_and_of_old_ones():
    check_supported(NEWEST_LEVELS)
    check_supported(FIRST_FEATURES.levels)


@pytest.mark.parametrize("name", [GROUP_VERSION, "later.version"])
def test_a_broker_names_the_feature_that_it_does_not_support_and_the_remedy(name):
    with pytest.raises(UnsupportedFeatureError) as failure:
        check_supported({**NEWEST_LEVELS, name: 7})
    highest = 1 if name == GROUP_VERSION else 0
    text = str(failure.value)
    assert f"uses {name} at level 7" in text
    assert f"headrace features downgrade --feature {name}={highest}" in text
    assert "\n" not in text


def test_levels_are_raised_and_the_others_stay():
    assert updated({"b": 1, "later": 4}, ("a", 3, UP)) == {"a": 3, "b": 1, "later": 4}


def test_several_levels_are_set_together_or_none_is():
    levels = {"a": 1}
    assert updated(levels, ("a", 2, UP), ("b", 1, UP)) == {"a": 2, "b": 1}
    assert "b can't be set to level 4" in refusal(levels, ("a", 2, UP), ("b", 4, UP))
    assert levels == {"a": 1}


@pytest.mark.parametrize("kind", [UP, SAFE, UNSAFE])
def test_the_present_level_is_confirmed_whatever_the_direction(kind):
    assert updated({"a": 1}, ("a", 1, kind)) == {"a": 1}


@pytest.mark.parametrize(
    ("present", "update", "said"),
    [
        (1, ("c", 1, UP), "does not know the feature; it knows a, b"),
        (1, ("a", 4, UP), "the controller supports levels 0 to 3"),
        (1, ("a", -1, UNSAFE), "the controller supports levels 0 to 3"),
        (1, ("a", 0, UP), "at level 1, and an upgrade does not lower it: ask for a downgrade"),
        (1, ("a", 2, SAFE), "at level 1, and a downgrade does not raise it: ask for an upgrade"),
        (1, ("a", 2, UNSAFE), "at level 1, and a downgrade does not raise it: ask for an upgrade"),
        (3, ("a", 1, SAFE), "below level 2 some of what was stored is lost: ask for an unsafe"),
        (1, ("a", 1, UpgradeType.UNKNOWN), "neither an upgrade nor a downgrade"),
    ],
)
def test_what_can_not_be_is_refused_with_the_reason(present, update, said):
    text = refusal({"a": present}, update)
    assert said in text
    assert text.startswith(f"{update[0]} can't be set to level {update[1]}: ")


def test_a_level_is_lowered_without_loss_by_a_safe_downgrade_and_further_by_an_unsafe_one():
    assert updated({"a": 3}, ("a", 2, SAFE)) == {"a": 2}
    assert updated({"a": 3}, ("a", 0, UNSAFE)) == {"a": 0}


def test_a_level_is_refused_while_a_broker_does_not_support_it():
    brokers = {1: ALL, 5: {**ALL, "a": FeatureLevels(0, 1)}, 7: {}}
    assert "broker 5 supports levels 0 to 1: upgrade that broker first" in refusal(
        {}, ("a", 2, UP), brokers=brokers
    )
    assert "broker 7 supports level 0 only" in refusal({}, ("a", 1, UP), brokers=brokers)
    assert updated({"a": 1}, ("a", 0, UNSAFE), brokers=brokers) == {"a": 0}


def test_a_feature_that_is_named_twice_is_refused():
    assert "names the feature twice" in refusal({}, ("a", 1, UP), ("a", 2, UP))


def test_a_name_of_any_length_makes_one_short_line():
    assert len(refusal({}, ("x\n" * 10_000, 1, UP))) < 600


def test_directions_have_the_numbers_of_the_protocol():
    assert [UpgradeType.of(number) for number in (-1, 0, 1, 2, 3, 4, 127)] == [
        UpgradeType.UNKNOWN,
        UpgradeType.UNKNOWN,
        UP,
        SAFE,
        UNSAFE,
        UpgradeType.UNKNOWN,
        UpgradeType.UNKNOWN,
    ]


def test_groups_of_the_coordinator_are_lowered_without_loss():
    brokers = {1: SUPPORTED}
    lowered = [FeatureUpdate(GROUP_VERSION, 0, SAFE)]
    assert updated_levels(NEWEST_LEVELS, lowered, brokers)[GROUP_VERSION] == 0
    assert set(FEATURES) == {GROUP_VERSION, TRANSACTION_VERSION}
