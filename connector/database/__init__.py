"""Writes micro-batches to a database, each record once (`KeyedSink`)."""
