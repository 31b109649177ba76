"""The rules of the assignors, each against a dumb reference."""
