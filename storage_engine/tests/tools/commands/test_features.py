"""`headrace features`: what it shows, what it asks for, and what it says of a wrong level."""

import json

import pytest

from storage_engine.client.admin.features import ClusterFeatureStates, FeatureState
from storage_engine.core.errors import ErrorCode, KafkaError
from storage_engine.core.features import FeatureLevels, UpgradeType
from storage_engine.tools.cli import main
from storage_engine.tools.commands import features

OLD, NEW = FeatureLevels(0, 0), FeatureLevels(0, 1)


class FeaturesOfACluster:
    """Two brokers, the second of which may be older; and the updates that they were asked for."""

    def __init__(self, fake, monkeypatch) -> None:
        self.bootstrap_server = fake.bootstrap_servers
        self.level, self.second = 0, NEW
        self.asked: list[object] = []
        self.failure: KafkaError | None = None
        monkeypatch.setattr(features, "describe_features", lambda _: self._states())
        monkeypatch.setattr(features, "update_features", self._update)

    def _states(self) -> ClusterFeatureStates:
        supported = {"group.version": {1: NEW, 2: self.second}}
        supported["transaction.version"] = dict.fromkeys((1, 2), FeatureLevels(2, 2))
        levels = {"group.version": self.level, "transaction.version": 2}
        return ClusterFeatureStates(
            epoch=3,
            features={
                name: FeatureState(name=name, level=levels[name], supported=supported[name])
                for name in sorted(levels)
            },
        )

    def _update(self, _cluster, levels, *, upgrade_type, validate_only) -> None:
        if self.failure is not None:
            raise self.failure
        self.asked.append((dict(levels), upgrade_type, validate_only))

    def run(self, action: str, *arguments: str) -> int:
        return main(["features", action, "--bootstrap-server", self.bootstrap_server, *arguments])


@pytest.fixture
def told(fake, monkeypatch) -> FeaturesOfACluster:
    return FeaturesOfACluster(fake, monkeypatch)


def test_levels_are_shown_with_the_brokers_that_hold_them_back(told, capsys):
    told.second = OLD
    assert told.run("describe") == 0
    assert capsys.readouterr().out.splitlines() == [
        "FEATURE              LEVEL  LOWEST  HIGHEST  HELD BACK BY  EPOCH",
        "group.version            0       0        0  2                 3",
        "transaction.version      2       2        2  -                 3",
    ]


def test_the_json_has_what_each_broker_supports(told, capsys):
    told.second = OLD
    assert told.run("describe", "--json") == 0
    groups, _ = json.loads(capsys.readouterr().out)
    assert groups["held_back_by"] == [2]
    assert groups["brokers"] == {
        "1": {"lowest": 0, "highest": 1},
        "2": {"lowest": 0, "highest": 0},
    }


def test_a_level_is_raised(told, capsys):
    assert told.run("upgrade", "--feature", "group.version=1") == 0
    assert told.asked == [({"group.version": 1}, UpgradeType.UPGRADE, False)]
    assert capsys.readouterr().out == "group.version is changed from level 0 to 1\n"


def test_a_dry_run_says_that_nothing_is_changed(told, capsys):
    assert told.run("upgrade", "--feature", "group.version=1", "--dry-run") == 0
    assert told.asked == [({"group.version": 1}, UpgradeType.UPGRADE, True)]
    assert "can be changed from level 0 to 1; nothing is changed" in capsys.readouterr().out


def test_a_level_that_is_there_already_is_no_failure(told, capsys):
    told.level = 1
    assert told.run("upgrade", "--feature", "group.version=1") == 0
    assert capsys.readouterr().out == "group.version is at level 1 already\n"


def test_all_features_are_raised_as_far_as_every_broker_allows(told, capsys):
    assert told.run("upgrade", "--all") == 0
    assert told.asked == [({"group.version": 1}, UpgradeType.UPGRADE, False)]
    told.second = OLD
    assert told.run("upgrade", "--all") == 0
    assert len(told.asked) == 1
    out = capsys.readouterr().out
    assert "group.version can't be raised further before these brokers are upgraded: 2" in out
    assert out.endswith("every feature is at the highest level that all brokers support\n")


@pytest.mark.parametrize(
    ("options", "kind"),
    [((), UpgradeType.SAFE_DOWNGRADE), (("--unsafe",), UpgradeType.UNSAFE_DOWNGRADE)],
)
def test_a_level_is_lowered(told, options, kind):
    told.level = 1
    assert told.run("downgrade", "--feature", "group.version=0", *options) == 0
    assert told.asked == [({"group.version": 0}, kind, False)]


def test_a_refusal_is_one_line(told, capsys):
    told.failure = KafkaError("group.version can't be set to level 1: …", ErrorCode.NONE)
    assert told.run("upgrade", "--feature", "group.version=1") == 1
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors == "headrace: group.version can't be set to level 1: …\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["upgrade"], "name features with --feature NAME=LEVEL, or give --all"),
        (["upgrade", "--all", "--feature", "a=1"], "or give --all"),
        (["downgrade"], "name features with --feature NAME=LEVEL"),
        (["upgrade", "--feature", "a"], "--feature 'a' is not of the form NAME=LEVEL"),
        (["upgrade", "--feature", "=1"], "is not of the form NAME=LEVEL"),
        (["upgrade", "--feature", "a=-1"], "is not of the form NAME=LEVEL"),
        (["upgrade", "--feature", "a=²"], "is not of the form NAME=LEVEL"),
        (["upgrade", "--feature", "a=1", "--feature", "a=2"], "--feature names 'a' twice"),
        (["upgrade", "--feature", "a=32768"], "levels go up to 32767"),
        (["upgrade", "--feature", f"a={'9' * 9000}"], "levels go up to 32767"),
    ],
)
def test_wrong_usage_is_told_in_one_line(told, capsys, arguments, said):
    assert told.run(*arguments) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1
    assert told.asked == []


@pytest.mark.parametrize("action", ["describe", "upgrade", "downgrade"])
def test_the_help_of_each_action_has_an_example(capsys, action):
    with pytest.raises(SystemExit):
        main(["features", action, "--help"])
    assert f"headrace features {action} " in capsys.readouterr().out
