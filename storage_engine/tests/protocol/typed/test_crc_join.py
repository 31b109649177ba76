"""CRCs of pieces, joined."""

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from storage_engine.protocol.typed.crc_join import joined_crc
from storage_engine.tests.sampling import examples


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(1, 400)), max_size=6))
def test_joined_crcs_are_those_of_the_joined_bytes(parts):
    blobs = [data * count for data, count in parts]
    assert joined_crc((crc32c(blob), len(blob)) for blob in blobs) == crc32c(b"".join(blobs))


def test_crcs_of_long_bytes_are_joined_too():
    blobs = [bytes([n]) * size for n, size in enumerate((4096, 4097, 70_000, 1, 1 << 20, 300))]
    assert joined_crc((crc32c(blob), len(blob)) for blob in blobs) == crc32c(b"".join(blobs))
