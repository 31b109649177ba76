"""Tests of what a log is after crashes."""
