"""The part of the table of settings that is about metrics for Prometheus."""

from storage_engine.core.settings.setting import Setting, SettingType

METRICS_LISTENER = "metrics.listener"
METRICS_REMOTE = "metrics.listener.allow.remote"
METRICS_HOSTS = "metrics.allowed.hosts"

METRICS_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name=METRICS_LISTENER,
        type=SettingType.STRING,
        doc="Metrics for Prometheus are given at http://HOST:PORT/metrics (default: none are).",
    ),
    Setting(
        name=METRICS_REMOTE,
        type=SettingType.BOOLEAN,
        default=False,
        doc="Other machines may reach metrics.listener, and read metrics without a log-in.",
    ),
    Setting(
        name=METRICS_HOSTS,
        type=SettingType.LIST,
        doc="Names by which scrapers call the broker, beside addresses and advertised names.",
    ),
)
