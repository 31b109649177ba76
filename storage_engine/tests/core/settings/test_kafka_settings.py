"""Each setting of Kafka has an effect, a default that counts, or a refusal; a page lists them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.kafka_settings import KAFKA_SETTINGS
from storage_engine.core.settings.setting import Setting
from storage_engine.core.settings.settings import ALIASES, BY_BROKER_KEY, BY_TOPIC_KEY

LIST = Path(__file__).with_name("kafka_settings.tsv")
PAGE = Path(__file__).parents[4] / "docs" / "settings.md"
MARK = "<!-- The tables below are written by the tests. -->\n"


class Known(NamedTuple):
    """A setting of Kafka's."""

    scope: str
    name: str
    type: str
    default: str
    dynamic: str
    releases: str

    @property
    def here(self) -> Setting:
        if self.scope == "topic":
            return BY_TOPIC_KEY[self.name]
        return ALIASES[self.name][0] if self.name in ALIASES else BY_BROKER_KEY[self.name]


KNOWN = [
    Known(*line.split("\t")) for line in LIST.read_text().splitlines() if not line.startswith("#")
]


def test_there_is_an_answer_for_every_setting_of_kafka() -> None:
    missing = []
    for known in KNOWN:
        try:
            _ = known.here
        except KeyError:
            missing.append((known.scope, known.name))
    assert missing == []


def test_nothing_is_taken_without_effect_that_kafka_does_not_know() -> None:
    names = {known.name for known in KNOWN}
    for row in KAFKA_SETTINGS:
        for name in [row.name] * row.for_topics + [row.broker_key] * row.for_brokers:
            assert name in names, name


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.scope}-{known.name}")
def test_a_setting_without_effect_is_taken_at_kafkas_default(known: Known) -> None:
    row = known.here
    if not row.without_effect or known.default in ("null", "required", ""):
        return
    if row.default is None:
        # It is not taken at all.
        assert row.default_only
        return
    if known.name != "group.coordinator.rebalance.protocols":
        assert row.parse(known.default) == row.default


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (BY_BROKER_KEY["process.roles"], "broker"),
        (BY_BROKER_KEY["remote.log.storage.system.enable"], "true"),
        (BY_BROKER_KEY["create.topic.policy.class.name"], "com.example.Policy"),
        (BY_TOPIC_KEY["message.timestamp.difference.max.ms"], "1"),
    ],
)
def test_what_asks_for_something_that_is_not_done_is_refused(row: Setting, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        row.parse(text)
    assert row.without_effect in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["log.cleaner.backoff.ms", "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"],
)
def test_what_changes_at_run_time_in_kafka_does_so_here(name: str) -> None:
    assert BY_BROKER_KEY[name].changes_live


def rows(scope: str) -> Iterator[str]:
    for known in KNOWN:
        if known.scope == scope:
            yield f"| `{known.name}` | {verdict(known)} |"


def verdict(known: Known) -> str:
    row = known.here
    if row.default_only:
        default = row.format(row.default)
        only = "refused" if default is None else f"only `{default}`" if default else "only empty"
        return f"{only}: {row.without_effect}"
    if row.without_effect:
        return f"no effect: {row.without_effect}"
    if known.scope == "topic":
        return "works"
    live = row.changes_live or row.live_per_listener
    return "works, at run time, too" if live else "works"


def test_the_page_says_what_becomes_of_each() -> None:
    head, mark, _ = PAGE.read_text().partition(MARK)
    assert mark
    text = head + MARK
    for title, scope in (("Topics", "topic"), ("Brokers", "broker")):
        table = "\n".join(rows(scope))
        text += f"\n## {title}\n\n| Setting of Kafka | Here |\n|---|---|\n{table}\n"
    if os.environ.get("HEADRACE_REWRITE"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text
