"""Typed batches: the columns of a typed topic's rows in one record batch."""
