"""When a topic's schema may be set: at its creation, and later only with versions appended.

Whether a topic is typed never changes, as its log would have batches of two kinds.
"""

from collections.abc import Mapping

from storage_engine.broker.settings.topic_config import (
    BrokerValues,
    parse_topic_overrides,
    value_underneath,
)
from storage_engine.core.errors import ConfigError
from storage_engine.core.settings.settings import BY_TOPIC_KEY
from storage_engine.core.typed.topic_schema import SCHEMA_SETTING, schema_of

_POLICY = "cleanup.policy"


def check_new_topic(broker: BrokerValues, settings: Mapping[str, str]) -> None:
    """ConfigError where a new topic with these settings can't be as its schema wants it."""
    text = settings.get(SCHEMA_SETTING)
    if text is not None and not schema_of(text).key and _compacts(broker, settings):
        raise ConfigError(
            f"{_POLICY}=compact needs a key, and the schema has none: name its key columns, or set "
            f"{_POLICY}=delete"
        )


def check_change(broker: BrokerValues, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """ConfigError for a change of a topic's settings that its schema forbids."""
    old, new = before.get(SCHEMA_SETTING), after.get(SCHEMA_SETTING)
    if old == new:
        if new is not None and _compacts(broker, after) and not _compacts(broker, before):
            check_new_topic(broker, after)
        return
    if old is None:
        raise ConfigError(
            f"{SCHEMA_SETTING}: a topic is typed from its creation on or never: create another one"
        )
    if new is None:
        raise ConfigError(
            f"{SCHEMA_SETTING} can't be removed, as the log has rows by it. (AlterConfigs replaces "
            "all settings: name it as DescribeConfigs gives it, or use IncrementalAlterConfigs.)"
        )
    try:
        present = schema_of(old)
    except ConfigError:
        # Somebody else has written it. What can be read now is better.
        return
    try:
        present.check_successor(schema_of(new))
    except ConfigError as error:
        raise ConfigError(f"{SCHEMA_SETTING}: {error}") from None


def _compacts(broker: BrokerValues, settings: Mapping[str, str]) -> bool:
    policy = settings.get(_POLICY)
    if policy is None:
        value = value_underneath(broker, BY_TOPIC_KEY[_POLICY])
    else:
        try:
            value = parse_topic_overrides({_POLICY: policy})[_POLICY]
        except ConfigError:
            return False
    return isinstance(value, tuple) and "compact" in value
