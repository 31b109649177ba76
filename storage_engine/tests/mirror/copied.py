"""Copies of a partition, as hypothesis makes them."""

from hypothesis import strategies as st

from storage_engine.mirror.offsets import DeliveredBatch
from storage_engine.protocol.records.copied_batches import Span

GAP = st.sampled_from([0, 0, 0, 1, 5])


@st.composite
def copies(draw):
    """Transactions of a mirror: what is delivered in each, and where each record has gone."""
    source = draw(st.integers(0, 100))
    target = draw(st.integers(0, 100))
    places: list[tuple[int, int]] = []
    transactions = []
    for _ in range(draw(st.integers(1, 12))):
        delivered = []
        for _ in range(draw(st.integers(1, 3))):
            target += draw(GAP)
            spans = []
            row = 0
            for _ in range(draw(st.integers(1, 3))):
                source += draw(GAP)
                count = draw(st.integers(1, 4))
                spans.append(Span(source, row, count))
                places += [(source + n, target + row + n) for n in range(count)]
                row += count
                source += count
            told = draw(st.sampled_from([True, True, True, False]))
            delivered.append(DeliveredBatch(target if told else -1, tuple(spans)))
            target += row
        source += draw(GAP)
        transactions.append((delivered, source))
        target += 1  # the marker
    return transactions, places
