"""The parts of encoded records, for all rows at once."""
