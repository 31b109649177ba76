"""The transaction coordinator's log as record batches, and the newest record of each key of the
whole log. Reading in pieces, in order, is the same as reading at once, whether compaction has been
there or not.

Keys of later versions are skipped. Source: KIP-98.
"""

from functools import partial

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.errors import CorruptRecordError
from storage_engine.core.transactions.transaction_state import (
    LedgerRecord,
    MemberRecord,
    StateContent,
    StateEntry,
    TransactionRecord,
)
from storage_engine.protocol.records.record_batch import BytesLike
from storage_engine.protocol.state.state_batches import encode_records, readable
from storage_engine.protocol.state.transaction_records import (
    decode_key,
    decode_record,
    encode_key,
    encode_record,
)

LOG = "transaction state log"


def new_content() -> StateContent:
    """Return the content of an empty log."""
    return {}


LONG_ITEMS = 5_000
"""Partitions, ends or origins of a record that is encoded in the background."""


def is_long(entry: StateEntry) -> bool:
    match entry[1]:
        case LedgerRecord() as ledger:
            return len(ledger.ends) + len(ledger.origins) > LONG_ITEMS
        case TransactionRecord() | MemberRecord() as record:
            return len(record.partitions) > LONG_ITEMS
    return False


encode_entries = partial(encode_records, encode_key, encode_record)
"""Entries as batches, in order, each with the number of its entries: see `encode_parts`."""


def replay(batches: BytesLike, content: StateContent) -> list[str]:
    """Apply whole batches of the log to `content`; return why records among them can't be
    decoded."""
    troubles: list[str] = []
    for offset, raw_key, raw in readable(batches, LOG, troubles):
        try:
            key = decode_key(raw_key)
        except CorruptRecordError as failure:
            troubles.append(f"the record at offset {offset} counts for nothing: {failure}")
            continue
        if key is None:
            continue
        if raw is None:
            content.pop(key, None)
            continue
        try:
            content[key] = decode_record(key, raw)
        except CorruptRecordError as failure:
            content[key] = UnreadableRecord(str(failure))
            troubles.append(
                f"requests for {key} are refused until a broker that can read its record at offset "
                f"{offset} leads: {failure}"
            )
    return troubles
