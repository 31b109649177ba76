"""Logs share the rules of their appends where these are the same."""

from storage_engine.log.append_rules import append_rules_of
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.segment_list import LogFolder


def test_logs_have_rules_of_their_own_where_settings_or_names_differ(tmp_path):
    def rules(name: str, **settings):
        config = LogConfig(**settings)
        pool = OpenFiles()
        return append_rules_of(
            LogFolder(disk=REAL_DISK, pool=pool, path=tmp_path / name, config=config)
        )

    assert rules("t-0") is rules("t-1")
    assert rules("t-0", max_message_bytes=7).max_message_bytes == 7
    ages = {
        rules(f"t-{p}", segment_jitter_ms=1000, segment_ms=5000).roll_rule._age_max_ms
        for p in range(5)
    }
    assert len(ages) > 1, "logs that were made together roll at different times"
