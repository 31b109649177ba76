"""The transaction coordinator's log as record batches, and the newest record of each key of the
whole log. Reading in pieces, in order, is the same as reading at once, whether compaction has been
there or not.

Keys of later versions are skipped. Source: KIP-98.
"""

from functools import partial

from storage_engine.core.coordinator_log import UnreadableRecord
from storage_engine.core.transactions.transaction_state import (
    LedgerRecord,
    MemberRecord,
    StateContent,
    StateEntry,
    TransactionRecord,
)
from storage_engine.protocol.records.record_batch import BytesLike
from storage_engine.protocol.state.state_batches import encode_records, read_records
from storage_engine.protocol.state.transaction_records import (
    FIELDS,
    decode_record,
    encode_key,
    encode_record,
)


def new_content() -> StateContent:
    """Return the content of an empty log."""
    return {}


LONG_ITEMS = 5_000
"""The partitions, or ends and origins, above which a record is encoded in the background."""


def is_long(entry: StateEntry) -> bool:
    match entry[1]:
        case LedgerRecord() as ledger:
            return len(ledger.ends) + len(ledger.origins) > LONG_ITEMS
        case TransactionRecord() | MemberRecord() as record:
            return len(record.partitions) > LONG_ITEMS
    return False


encode_entries = partial(encode_records, encode_key, encode_record)
"""Encode entries as batches, in order, each with the number of its entries: see `encode_parts`."""


def replay(batches: BytesLike, content: StateContent) -> list[str]:
    """Apply whole batches of the log to `content`; return why records among them can't be
    decoded."""
    troubles: list[str] = []
    for offset, key, record in read_records(batches, FIELDS, decode_record, troubles):
        if record is None:
            content.pop(key, None)
            continue
        content[key] = record
        if isinstance(record, UnreadableRecord):
            troubles.append(
                f"requests for {key} are refused until a broker that can read its record at offset "
                f"{offset} leads: {record.reason}"
            )
    return troubles
