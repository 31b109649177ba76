"""One setting: what is taken as its value, and what a wrong one is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.setting import LONG_MAX, Setting, SettingType, unknown_key_error
from storage_engine.core.settings.settings import ALIASES, BY_BROKER_KEY, BY_TOPIC_KEY


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SettingType.BOOLEAN, "yes"),
        (SettingType.BOOLEAN, ""),
        (SettingType.INT, "1.5"),
        (SettingType.INT, "1_000"),
        (SettingType.INT, "٣"),
        (SettingType.INT, str(2**31)),
        (SettingType.INT, "0x10"),
        (SettingType.LONG, str(2**63)),
        (SettingType.LONG, ""),
        (SettingType.DOUBLE, "nan"),
        (SettingType.DOUBLE, "inf"),
        (SettingType.LIST, "a,,b"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(kind: SettingType, text: str) -> None:
    with pytest.raises(ConfigError, match=r"^k=.*: must be "):
        Setting(name="k", type=kind, doc="").parse(text)


def test_the_error_says_what_is_allowed() -> None:
    def refusal(row: Setting, text: str) -> str:
        with pytest.raises(ConfigError) as caught:
            row.parse(text)
        return str(caught.value)

    assert refusal(BY_BROKER_KEY["num.partitions"], "0") == (
        "num.partitions=0: must be a whole number, 1 or more (partitions)"
    )
    assert refusal(BY_TOPIC_KEY["min.cleanable.dirty.ratio"], "2") == (
        "min.cleanable.dirty.ratio=2: must be a number from 0 to 1"
    )
    assert refusal(BY_TOPIC_KEY["message.timestamp.type"], "createtime") == (
        "message.timestamp.type=createtime: must be CreateTime or LogAppendTime"
    )


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), (" false ", False)])
def test_booleans_are_taken_in_any_case(text: str, value: bool) -> None:
    assert BY_BROKER_KEY["delete.topic.enable"].parse(text) is value


@given(st.integers(min_value=-LONG_MAX - 1, max_value=LONG_MAX))
def test_whole_numbers_survive_text(value: int) -> None:
    row = Setting(name="k", type=SettingType.LONG, doc="")
    text = row.format(value)
    assert text is not None
    assert row.parse(text) == value


@given(st.floats(min_value=0, max_value=1))
def test_shares_survive_text(value: float) -> None:
    row = BY_TOPIC_KEY["min.cleanable.dirty.ratio"]
    text = row.format(value)
    assert text is not None
    assert row.parse(text) == value


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("log.dir s", "log.dirs"),
        ("brokerid", "broker.id"),
        ("min.insync.replica", "min.insync.replicas"),
        ("zookeper.connect", "zookeeper.connect"),
    ],
)
def test_an_unknown_key_suggests_the_nearest(key: str, nearest: str) -> None:
    error = unknown_key_error(key, (*BY_BROKER_KEY, *ALIASES), what="setting")
    assert str(error) == f"there is no setting '{key}', did you mean '{nearest}'?"


def test_a_key_like_no_other_suggests_nothing() -> None:
    error = unknown_key_error("qqqqqq", BY_BROKER_KEY, what="setting")
    assert str(error) == "there is no setting 'qqqqqq'"
