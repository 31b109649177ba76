"""Reads typed topics: only the columns that a query names, only the rows that it wants."""
