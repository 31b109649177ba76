"""Tests of what is appended."""
