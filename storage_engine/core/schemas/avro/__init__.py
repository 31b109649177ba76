"""Avro schemas: their tree, their canonical form, and what a reader of one can read of another."""
