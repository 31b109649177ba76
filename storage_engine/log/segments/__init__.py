"""Segments: files of record batches and their indexes, and searches in them."""
