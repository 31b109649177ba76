"""Settings that lists show: few topics at a look, those that lack replicas first."""

import time

import pytest

from headrace_console.cluster.setting_looks import (
    BROKER_KEPT_S,
    KEPT_S,
    MIN_ISR,
    MOST_TOPICS,
    RESERVE,
    SHORT_KEPT_S,
    SettingLooks,
)
from headrace_console.cluster.snapshot import TopicFacts
from headrace_console.tests.made_snapshots import snapshot
from storage_engine.core.errors import ErrorCode, HeadraceError
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING
from storage_engine.protocol.messages.describe_configs import DescribeConfigsResponse

Result = DescribeConfigsResponse.DescribeConfigsResult
BROKER = 4


class Brokers:
    """Brokers that know settings of every resource; what they were asked for, and a clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.values: dict[str, str] = {RESERVE: "1000", MIN_ISR: "2"}
        self.codes: dict[str, ErrorCode] = {}
        self.silent: set[int] = set()
        self.topics: list[str] = []
        self.brokers: list[str] = []
        self.now_s = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now_s)
        self.looks = SettingLooks(self._ask)

    def _ask(self, questions):
        answers = {}
        for broker, ((_, request),) in questions.items():
            for resource in request.resources:
                kept = self.brokers if resource.resource_type == BROKER else self.topics
                kept.append(resource.resource_name)
            rows = [self._result(each) for each in request.resources]
            refused = HeadraceError("not now")
            answers[broker] = [
                refused
                if broker in self.silent
                else DescribeConfigsResponse(throttle_time_ms=0, results=rows)
            ]
        return answers

    def _result(self, resource):
        config = Result.DescribeConfigsResourceResult
        return Result(
            error_code=self.codes.get(resource.resource_name, 0),
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[
                config(name=name, value=self.values[name], read_only=False, is_sensitive=False)
                for name in resource.configuration_keys
                if name in self.values
            ],
        )

    def look(self, seen, well=(1, 2)):
        self.topics, self.brokers = [], []
        return self.looks.look(seen.metadata, well)


@pytest.fixture
def brokers(monkeypatch) -> Brokers:
    return Brokers(monkeypatch)


def test_settings_are_read_once_and_kept(brokers):
    brokers.values[SCHEMA_SETTING] = "{}"
    seen = snapshot(topics=1)
    assert brokers.look(seen) == {"t0": TopicFacts(2, True)}
    assert sorted(brokers.brokers) == ["1", "2"]
    assert brokers.looks.reserves == {1: 1000, 2: 1000}
    assert brokers.look(seen) == {"t0": TopicFacts(2, True)}
    assert brokers.topics == brokers.brokers == []
    brokers.now_s += BROKER_KEPT_S
    brokers.look(seen)
    assert (brokers.topics, sorted(brokers.brokers)) == ([], ["1", "2"])


def test_topics_that_lack_replicas_are_read_again_soon(brokers):
    seen = snapshot(topics=1, isr=(1,))
    brokers.look(seen)
    brokers.now_s += SHORT_KEPT_S - 1
    brokers.look(seen)
    assert brokers.topics == []
    brokers.now_s += 1
    brokers.look(seen)
    assert brokers.topics == ["t0"]
    brokers.look(snapshot(topics=1))
    brokers.now_s += KEPT_S
    brokers.look(snapshot(topics=1))
    assert brokers.topics == ["t0"]


def test_a_look_asks_for_few_topics_and_the_next_one_goes_on(brokers):
    many = snapshot(topics=2 * MOST_TOPICS - 10)
    first = set(brokers.look(many))
    assert len(first) == len(brokers.topics) == MOST_TOPICS
    assert len(brokers.look(many)) == 2 * MOST_TOPICS - 10
    assert not first & set(brokers.topics)


def test_a_topic_that_is_gone_is_forgotten_and_one_that_is_refused_is_not_known(brokers):
    brokers.codes["t1"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert brokers.look(snapshot(topics=2)) == {
        "t0": TopicFacts(2, False),
        "t1": TopicFacts(None, None),
    }
    assert set(brokers.look(snapshot(topics=1))) == {"t0"}


def test_a_broker_that_does_not_answer_is_asked_again_and_a_value_may_be_no_number(brokers):
    brokers.silent = {1, 2}
    assert brokers.look(snapshot(topics=1)) == {}
    brokers.silent = set()
    brokers.values = {RESERVE: "much", MIN_ISR: "-1"}
    assert brokers.look(snapshot(topics=1)) == {"t0": TopicFacts(None, False)}
    assert brokers.looks.reserves == {1: 0, 2: 0}


def test_without_a_broker_that_answers_nobody_is_asked(brokers):
    assert brokers.look(snapshot(topics=1), well=()) == {}
    assert brokers.topics == brokers.brokers == []
