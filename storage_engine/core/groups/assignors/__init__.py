"""The assignors of consumer groups, as pure functions."""
