"""Rules for appends: limits of time (KIP-937), and logs that share them."""

import pytest

from storage_engine.core.errors import ErrorCode, InvalidTimestampError
from storage_engine.log.append_rules import append_rules_of
from storage_engine.log.files.disk import REAL_DISK
from storage_engine.log.files.segment_files import OpenFiles
from storage_engine.log.log_config import LogConfig
from storage_engine.log.segments.segment_list import LogFolder
from storage_engine.protocol.records.record_batch import read_header, seal
from storage_engine.tests.log.support import append, make_batch, open_log

NOW_MS = 1_700_000_000_000


LIMITED = LogConfig(
    message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500, retention_ms=-1
)


@pytest.mark.parametrize("timestamp_ms", [NOW_MS - 1000, NOW_MS, NOW_MS + 500, -1])
def test_times_within_the_limits_are_taken(tmp_path, timestamp_ms):
    log = open_log(tmp_path, LIMITED)
    assert append(log, timestamp_ms=timestamp_ms, now_ms=NOW_MS).base_offset == 0


@pytest.mark.parametrize(
    ("timestamp_ms", "key"),
    [
        (NOW_MS - 1001, "message.timestamp.before.max.ms=1000"),
        (NOW_MS + 501, "message.timestamp.after.max.ms=500"),
        (NOW_MS * 1000, "message.timestamp.after.max.ms=500"),
    ],
)
def test_times_beyond_the_limits_are_refused_and_the_log_is_as_it_was(tmp_path, timestamp_ms, key):
    log = open_log(tmp_path, LIMITED)
    with pytest.raises(InvalidTimestampError, match=key) as raised:
        append(log, timestamp_ms=timestamp_ms, now_ms=NOW_MS)
    assert raised.value.code is ErrorCode.INVALID_TIMESTAMP
    assert not raised.value.code.retriable
    assert log.log_end_offset == 0


def test_the_first_record_of_a_batch_stands_for_the_oldest(tmp_path):
    """Records are never decoded: the newest one's time alone would let it pass."""
    log = open_log(tmp_path, LIMITED)
    header_only_recent = make_batch(2, timestamp_ms=NOW_MS - 5000)
    buffer = memoryview(bytearray(header_only_recent))
    seal(buffer, 0, read_header(buffer)._replace(max_timestamp=NOW_MS))
    with pytest.raises(InvalidTimestampError, match=r"before\.max\.ms"):
        log.leader_appends.append(buffer, leader_epoch=0, now_ms=NOW_MS)


def test_with_append_time_no_time_of_a_producer_is_refused(tmp_path):
    config = LogConfig(
        message_timestamp_type="LogAppendTime",
        message_timestamp_before_max_ms=1,
        message_timestamp_after_max_ms=1,
    )
    log = open_log(tmp_path, config)
    assert append(log, timestamp_ms=5, now_ms=NOW_MS).base_offset == 0


def test_without_limits_every_time_is_taken(tmp_path):
    log = open_log(tmp_path, LogConfig())
    for timestamp_ms in (-1, 0, NOW_MS * 1000, (1 << 62)):
        append(log, timestamp_ms=timestamp_ms, now_ms=NOW_MS)
    assert log.log_end_offset == 4


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
