"""Runnable examples; they are not part of the distribution."""
