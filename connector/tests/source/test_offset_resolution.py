"""Resolving what the user said to offsets that exist."""

import pytest

from connector.errors import ConnectorError, DataLossError, OptionError
from connector.options.offset_specs import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    Everywhere,
    PerPartition,
    PerPartitionTimestamp,
)
from connector.source.offset_resolution import resolve
from storage_engine.core.ids import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Logs:
    """Partition 0 has the offsets 10 to 19 with times 1000, 1001, …; partition 1 is empty."""

    ends = {T0: (10, 20), T1: (0, 0)}  # noqa: RUF012

    def offsets_at(self, timestamps_ms):
        return {each: self._offset_at(each, time) for each, time in timestamps_ms.items()}

    def _offset_at(self, topic_partition, timestamp_ms):
        low, high = self.ends[topic_partition]
        if timestamp_ms == EARLIEST:
            return low
        if timestamp_ms == LATEST:
            return high
        offset = low + max(0, timestamp_ms - 1000)
        return offset if offset < high else -1


def _resolve(spec, partitions=(T0, T1), which="starting", fail=True, or_latest=False):
    return resolve(
        spec,
        partitions,
        Logs(),
        which=which,
        fail_on_data_loss=fail,
        fall_back_to_latest=or_latest,
    )


def test_the_ends_of_the_log():
    assert _resolve(Everywhere(special=EARLIEST)) == {T0: 10, T1: 0}
    assert _resolve(Everywhere(special=LATEST)) == {T0: 20, T1: 0}


def test_explicit_offsets_may_mix_with_the_special_ones():
    assert _resolve(PerPartition(offsets={T0: 13, T1: LATEST})) == {T0: 13, T1: 0}


@pytest.mark.parametrize(("offset", "nearest"), [(3, 10), (99, 20)])
def test_an_offset_outside_the_log_is_a_loss_that_names_the_range(offset, nearest):
    spec = PerPartition(offsets={T0: offset, T1: 0})
    with pytest.raises(DataLossError) as raised:
        _resolve(spec)
    assert f"names offset {offset} of t-0, which has the offsets from 10 to 20" in str(raised.value)
    assert _resolve(spec, fail=False)[T0] == nearest


def test_explicit_offsets_must_name_exactly_what_is_read():
    with pytest.raises(OptionError, match="lacks t-1"):
        _resolve(PerPartition(offsets={T0: 13}))
    with pytest.raises(OptionError, match="names t-1, which is not read"):
        _resolve(PerPartition(offsets={T0: 13, T1: 0}), partitions=[T0])


def test_a_time_gives_the_first_record_at_or_after_it():
    assert _resolve(AtTimestamp(timestamp_ms=1005), partitions=[T0]) == {T0: 15}
    spec = PerPartitionTimestamp(timestamps_ms={T0: 1005})
    assert _resolve(spec, partitions=[T0]) == {T0: 15}


def test_a_time_after_the_last_record_fails_or_begins_at_the_end_as_asked():
    spec = AtTimestamp(timestamp_ms=1005)
    with pytest.raises(ConnectorError, match="t-1 has no record at or after 1005"):
        _resolve(spec)
    assert _resolve(spec, or_latest=True) == {T0: 15, T1: 0}
    assert _resolve(spec, which="ending") == {T0: 15, T1: 0}
