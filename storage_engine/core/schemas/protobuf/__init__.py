"""Protobuf schemas: their types, their canonical text, and what a reader of one can read of
another. Texts are compiled elsewhere; here are descriptors."""
