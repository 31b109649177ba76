"""Batches of random bytes for the benchmark of the log."""

import pytest

from benchmarks.support.log_batches import append_all, open_log, sealed_batch, sealed_batches
from storage_engine.protocol.records.record_batch import read_header, validate_for_append


@pytest.mark.parametrize("size", [100, 1 << 10, 128 << 10])
def test_a_batch_has_the_size_asked_for_and_is_one_that_brokers_take(size):
    ((_, header),) = validate_for_append(sealed_batch(size), max_message_bytes=1 << 20)
    assert (header.size_in_bytes, header.records_count) == (size, max(1, size // 100))


def test_batches_differ_so_that_no_layer_can_save_work(tmp_path):
    batches = sealed_batches(1 << 10, 3)
    assert len({bytes(each) for each in batches}) == 3
    log = open_log(tmp_path)
    assert append_all(log, batches, 5 << 10) == 5
    assert log.log_end_offset == 5 * read_header(batches[0]).records_count
    log.close()
