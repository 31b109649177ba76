"""Reads records in Avro as columns: their framing cut off, decoded by the schema that each was
written in, resolved to the one that the query reads in."""
