"""Writes rows as records in Avro, whose schemas are in a registry."""
