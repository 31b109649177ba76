"""Tests of the log dirs of a broker."""
