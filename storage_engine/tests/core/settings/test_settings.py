"""The table of settings: names, defaults, and a sentence for each."""

from storage_engine.core.settings.settings import ALIASES, BY_BROKER_KEY, BY_TOPIC_KEY, SETTINGS

R_TOOL1 = [
    "unclean.leader.election.enable",
    "delete.retention.ms",
    "segment.jitter.ms",
    "retention.ms",
    "flush.ms",
    "segment.bytes",
    "flush.messages",
    "segment.ms",
    "retention.bytes",
    "cleanup.policy",
    "segment.index.bytes",
    "min.cleanable.dirty.ratio",
    "max.message.bytes",
    "file.delete.delay.ms",
    "min.insync.replicas",
    "index.interval.bytes",
]


def test_every_topic_setting_of_the_documents_is_there() -> None:
    """R-TOOL1."""
    assert set(R_TOOL1) <= set(BY_TOPIC_KEY)


def test_the_documented_defaults_count() -> None:
    """R-REP4, R-REP11, R-CTL6, R-CTL11."""
    documented = {
        "replica.lag.time.max.ms": 10_000,
        "replica.lag.max.messages": None,
        "zookeeper.session.timeout.ms": 6000,
        "default.replication.factor": 3,
        "delete.topic.enable": True,
        "min.insync.replicas": 1,
        "unclean.leader.election.enable": False,
        "auto.leader.rebalance.enable": True,
    }
    assert {key: BY_BROKER_KEY[key].default for key in documented} == documented


def test_no_name_stands_for_two_settings() -> None:
    broker_names = [row.broker_key for row in SETTINGS] + list(ALIASES)
    assert len(set(broker_names)) == len(broker_names)
    assert len({row.name for row in SETTINGS}) == len(SETTINGS)


def test_every_default_is_possible_by_its_own_row() -> None:
    for row in SETTINGS:
        text = row.format(row.default)
        assert (text is None) == (row.default is None), row
        if text is not None:
            assert row.parse(text) == row.default, row


def test_every_row_says_what_it_means_in_one_sentence() -> None:
    for row in SETTINGS:
        assert row.doc.endswith("."), row
        assert "\n" not in row.doc, row
        assert len(row.doc) <= 110, row
