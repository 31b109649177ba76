"""Memory for large frames is used again when nobody looks at it."""

from storage_engine.net.limits import BufferPool

MIB = 1 << 20


def address(view: memoryview) -> int:
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def test_memory_that_nobody_looks_at_is_used_again():
    pool = BufferPool()
    first = pool.take(MIB)
    where = address(first)
    del first
    assert address(pool.take(MIB - 5)) == where


def test_memory_that_is_looked_at_is_left_alone():
    pool = BufferPool()
    slices = []
    for number in range(20):
        view = pool.take(MIB)
        view[:] = bytes([number]) * MIB
        slices.append(view[1000:2000][10:])
        del view
    for number, piece in enumerate(slices):
        assert bytes(piece) == bytes([number]) * 990


def test_a_view_has_exactly_the_size_asked_for_and_can_be_written():
    pool = BufferPool()
    for size in (1, 65_536, 65_537, 3 * MIB + 1):
        view = pool.take(size)
        assert len(view) == size
        assert not view.readonly


def test_the_pool_keeps_no_more_than_its_limit():
    pool = BufferPool(pooled_max_bytes=4 * MIB)
    held = [pool.take(MIB) for _ in range(10)]
    assert pool._pooled_bytes <= 4 * MIB
    held.clear()
    assert len(pool.take(3 * MIB)) == 3 * MIB
    assert pool._pooled_bytes <= 4 * MIB
