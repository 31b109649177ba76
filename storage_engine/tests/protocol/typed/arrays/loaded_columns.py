"""Loads a block as a column, as a reader of a batch does."""

from storage_engine.protocol.typed.arrays.ipc_message import column_kind
from storage_engine.protocol.typed.column_codec import load_column
from storage_engine.protocol.typed.directory import PLAIN, ColumnEntry

LIMIT = 1 << 20


def entry_for(block, *, rows=1, raw_bytes=None, codec=0, encoding=PLAIN, nulls=0):
    raw = len(block) if raw_bytes is None else raw_bytes
    return ColumnEntry(1, 0, len(block), raw, 0, nulls, codec, encoding, 0, b"", b"")


def load(block, kind, rows=1, **options):
    entry = entry_for(block, rows=rows, **options)
    return load_column(block, entry, column_kind(kind), rows, max_bytes=LIMIT)
