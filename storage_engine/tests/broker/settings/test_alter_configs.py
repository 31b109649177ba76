"""What may be changed, of which topic or broker, and what an answer says. Source: R-TOOL1."""

import pytest

from storage_engine.core.errors import ErrorCode
from storage_engine.tests.broker.settings.settings_requests import (
    BROKER,
    DONE,
    SET,
    TOPIC,
    alter,
    describe,
    notifications,
    replace_all,
    stored,
)


def test_the_older_request_replaces_all_settings(topic):
    alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1000"))
    assert replace_all(topic, 1, TOPIC, "t", retention_ms="7") == DONE
    assert stored(topic) == {"retention.ms": "7"}


def test_validation_alone_changes_nothing(topic):
    change = ("segment.bytes", SET, "1000")
    assert alter(topic, 1, TOPIC, "t", change, validate_only=True) == DONE
    code, _ = alter(topic, 1, TOPIC, "t", ("segment.bytes", SET, "1"), validate_only=True)
    assert code is ErrorCode.INVALID_CONFIG
    assert stored(topic) == {}
    assert notifications(topic) == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "log.dirs",
            "/x",
            "'log.dirs' can't be changed at run time: change it in the broker's file and "
            "restart it",
        ),
        ("log.roll.hours", "1", "'log.roll.hours' is another name of 'log.roll.ms': set that one"),
        (
            "log.retention.mss",
            "1",
            "there is no setting 'log.retention.mss', did you mean 'log.retention.ms'?",
        ),
        (
            "message.max.bytes",
            "200000000",
            "message.max.bytes=200000000 must not be above socket.request.max.bytes=104857600",
        ),
    ],
)
def test_what_a_running_broker_can_not_take_is_refused(topic, key, value, message):
    for name in ("1", ""):
        assert alter(topic, 1, BROKER, name, (key, SET, value)) == (
            ErrorCode.INVALID_CONFIG,
            message,
        )


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        (BROKER, "9", "there is no live broker 9; alive are [1, 2, 3]"),
        (BROKER, "01", "'01' is not a broker's id"),
        (BROKER, "x", "'x' is not a broker's id"),
        (8, "x", "broker 1 can't alter the loggers of broker 'x': send the request to that broker"),
        (16, "x", "resources of type 16 have no settings here"),
    ],
)
def test_who_has_no_settings_is_told(topic, kind, name, message):
    assert alter(topic, 1, kind, name, ("log.segment.bytes", SET, "1000")) == (
        ErrorCode.INVALID_REQUEST,
        message,
    )


def test_settings_of_kafka_without_effect_are_taken_shown_and_logged(topic, caplog):
    assert alter(topic, 1, TOPIC, "t", ("preallocate", SET, "true"))[0] == 0
    assert alter(topic, 1, TOPIC, "t", ("remote.storage.enable", SET, "false"))[0] == 0
    assert alter(topic, 1, BROKER, "", ("num.io.threads", SET, "4"))[0] == 0
    shown = describe(topic, 1, TOPIC, "t")
    assert shown["preallocate"].value == "true"
    # What topics alone have is shown where this one does not set it, too.
    assert shown["remote.log.copy.disable"].value == "false"
    logged = [each.getMessage() for each in caplog.records]
    assert "preallocate of topic 't' has no effect: segments grow as they are written" in logged
    assert any(each.startswith("num.io.threads of all brokers has no effect: ") for each in logged)
    assert alter(topic, 1, TOPIC, "t", ("remote.storage.enable", SET, "true")) == (
        ErrorCode.INVALID_CONFIG,
        "remote.storage.enable=true: must be false: there is no remote storage",
    )
