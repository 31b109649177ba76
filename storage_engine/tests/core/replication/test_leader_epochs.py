"""The epoch cache against KIP-101 and KIP-279."""

import pytest

from storage_engine.core.replication.leader_epochs import EpochEnd, EpochStart, LeaderEpochCache


def cache_of(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache([EpochStart(*entry) for entry in entries])


def test_an_empty_cache_knows_no_epoch():
    cache = LeaderEpochCache()
    assert cache.latest_epoch == -1
    assert cache.end_offset_for(0, 10) == (-1, -1)
    assert cache.epoch_at(0) == -1


def test_the_latest_epoch_ends_at_the_log_end():
    """KIP-101: the leader answers its log end offset for its current epoch."""
    assert cache_of((2, 0), (3, 40)).end_offset_for(3, 100) == EpochEnd(3, 100)


def test_an_older_epoch_ends_where_the_next_begins():
    """KIP-101: the start offset of the first epoch larger than the one asked for."""
    assert cache_of((2, 0), (3, 40), (7, 60)).end_offset_for(3, 100) == EpochEnd(3, 60)


def test_an_epoch_that_wrote_nothing_is_answered_with_the_largest_below_it():
    """KIP-279: the answer carries the epoch that the offset belongs to, so that the follower can go
    further back.
    """
    assert cache_of((2, 0), (3, 40), (7, 60)).end_offset_for(5, 100) == EpochEnd(3, 60)


def test_an_epoch_newer_than_the_latest_is_undefined():
    assert cache_of((2, 0)).end_offset_for(3, 100) == (-1, -1)


def test_an_epoch_older_than_all_ends_at_the_first_start():
    """Everything the follower has of it lies before what the leader still keeps."""
    assert cache_of((5, 30), (6, 40)).end_offset_for(2, 100) == EpochEnd(2, 30)


def test_a_negative_epoch_is_undefined():
    assert cache_of((0, 0)).end_offset_for(-1, 100) == (-1, -1)


def test_assigning_the_latest_epoch_again_keeps_its_start():
    cache = cache_of((2, 10))
    assert not cache.assign(2, 20)
    assert cache.entries == ((2, 10),)


def test_an_epoch_that_begins_lower_than_known_ones_replaces_them():
    """KIP-101 step 5.4: entries that contradict the new one are of a history that was cut off."""
    cache = cache_of((2, 10), (3, 20), (4, 30))
    assert cache.assign(5, 20)
    assert cache.entries == ((2, 10), (5, 20))


def test_an_older_epoch_replaces_later_ones():
    cache = cache_of((2, 10), (5, 20))
    assert cache.assign(3, 40)
    assert cache.entries == ((2, 10), (3, 40))


def test_truncation_at_the_end_drops_epochs_that_begin_there():
    cache = cache_of((2, 10), (3, 20), (4, 30))
    assert cache.truncate_from_end(20)
    assert cache.entries == ((2, 10),)
    assert not cache.truncate_from_end(20)


def test_truncation_at_the_start_keeps_the_epoch_of_the_last_offset_below_it():
    """With its own start: a replica with another epoch there has other batches."""
    cache = cache_of((2, 10), (3, 20), (4, 30))
    assert not cache.truncate_from_start(5)
    assert not cache.truncate_from_start(20)
    assert cache.truncate_from_start(21)
    assert cache.entries == ((3, 20), (4, 30))
    assert not cache.truncate_from_start(30)
    assert cache.end_offset_for(2, 100) == (2, 20)


@pytest.mark.parametrize(("offset", "epoch"), [(9, -1), (10, 2), (19, 2), (20, 3), (99, 3)])
def test_the_epoch_of_an_offset(offset, epoch):
    assert cache_of((2, 10), (3, 20)).epoch_at(offset) == epoch


def test_entries_that_contradict_each_other_are_dropped():
    assert cache_of((2, 10), (1, 20), (3, 5), (-1, 30), (4, 40)).entries == ((2, 10), (4, 40))
